// Command clientgo campaigns with client-go's leader election: the peer of the tests.
//
//	clientgo -kubeconfig FILE -namespace NS -name NAME -identity ID [-lease 5s -renew-deadline 4s -retry 1s] [-release=false]
//
// It prints one line a transition, "won", "lost" or "sees WHO", and "tick NANOSECONDS" while it is at work. After a term it campaigns again. SIGTERM ends it, and
// releases its office where -release is given.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	namespace := flag.String("namespace", "default", "of the Lease")
	name := flag.String("name", "", "of the Lease")
	identity := flag.String("identity", "", "of this campaigner")
	lease := flag.Duration("lease", 5*time.Second, "LeaseDuration")
	deadline := flag.Duration("renew-deadline", 4*time.Second, "RenewDeadline")
	retry := flag.Duration("retry", time.Second, "RetryPeriod")
	release := flag.Bool("release", true, "ReleaseOnCancel")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	config.Timeout = *deadline / 2
	client, err := kubernetes.NewForConfig(config)
	must(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: *name, Namespace: *namespace},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
			},
			LeaseDuration:   *lease,
			RenewDeadline:   *deadline,
			RetryPeriod:     *retry,
			ReleaseOnCancel: *release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: work,
				OnStoppedLeading: func() { fmt.Println("lost") },
				OnNewLeader:      func(who string) { fmt.Println("sees", who) },
			},
		})
		must(err)
		elector.Run(ctx)
	}
}

// work ticks until it is told to stop, each tick with the time at which it still led.
func work(ctx context.Context) {
	fmt.Println("won")
	for ctx.Err() == nil {
		now := time.Now().UnixNano()
		if ctx.Err() == nil {
			fmt.Println("tick", now)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "clientgo:", err)
		os.Exit(1)
	}
}
