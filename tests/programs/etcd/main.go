// Command etcd campaigns with etcd's own election, concurrency.Election: the peer of the measurements.
//
//	etcd -endpoints HOST:PORT,... -name NAME -identity ID [-ttl 1] [-elections 1]
//
// It prints one line a transition, "won" or "lost"; with more -elections, each with a session and so a lease of its own, "led N" whenever the number of those
// that it leads has changed. After a term it campaigns again. SIGTERM ends it: it resigns, and revokes its lease.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "the members")
	name := flag.String("name", "", "of the election")
	identity := flag.String("identity", "", "of this candidate")
	ttl := flag.Int("ttl", 1, "of a session, in seconds; the server has a minimum")
	elections := flag.Int("elections", 1, "how many, as NAME-0, NAME-1, ...")
	flag.Parse()

	// As etcd advises for failover: a connection that does not answer is given up.
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            strings.Split(*endpoints, ","),
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
	})
	must(err)
	defer client.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	if *elections == 1 {
		campaign(ctx, client, *name, *identity, *ttl, func(led bool) {
			if led {
				fmt.Println("won")
			} else {
				fmt.Println("lost")
			}
		})
		return
	}
	var all sync.WaitGroup
	var count atomic.Int64
	for i := range *elections {
		all.Go(func() {
			campaign(ctx, client, fmt.Sprintf("%s-%d", *name, i), *identity, *ttl, func(led bool) {
				if led {
					count.Add(1)
				} else {
					count.Add(-1)
				}
			})
		})
	}
	for last := int64(-1); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if now := count.Load(); now != last {
			fmt.Println("led", now)
			last = now
		}
	}
	all.Wait()
}

// campaign leads one election again and again.
func campaign(ctx context.Context, client *clientv3.Client, name, identity string, ttl int, report func(bool)) {
	for ctx.Err() == nil {
		if err := term(ctx, client, name, identity, ttl, report); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func term(ctx context.Context, client *clientv3.Client, name, identity string, ttl int, report func(bool)) error {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer session.Close()
	// A Campaign does not end with its session by itself.
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-during.Done():
		}
	}()
	election := concurrency.NewElection(session, name)
	if err := election.Campaign(during, identity); err != nil {
		return err
	}
	report(true)
	<-during.Done()
	report(false)
	if ctx.Err() != nil {
		return election.Resign(context.Background())
	}
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}
