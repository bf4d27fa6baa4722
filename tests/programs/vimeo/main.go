// Command vimeo campaigns with vimeo/leaderelection on Google Cloud Storage: the peer of the tests.
//
//	STORAGE_EMULATOR_HOST=127.0.0.1:PORT vimeo -bucket BUCKET -object OBJECT -identity ID [-term 3s -skew 0s -address HOST:PORT -count]
//
// It prints one line a transition, "won", "lost" or "sees WHO", "asks" for each request if -count is given, and "tick" every 10 ms while its term is not over, by the
// clock that it is given for that, and "context" where only its context still says so.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"cloud.google.com/go/storage"
	"github.com/vimeo/leaderelection"
	"github.com/vimeo/leaderelection/entry"
	"github.com/vimeo/leaderelection/gcs"
	"google.golang.org/api/option"
)

// numbered adds a header that the emulator leaves out, and Google's reader of these days insists on.
type numbered struct{ tells bool }

func (numbered numbered) RoundTrip(request *http.Request) (*http.Response, error) {
	if numbered.tells {
		fmt.Println("asks")
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil && response.Header.Get("X-Goog-Metageneration") == "" {
		response.Header.Set("X-Goog-Metageneration", "1")
	}
	return response, err
}

func main() {
	bucket := flag.String("bucket", "", "of the object")
	object := flag.String("object", "", "of the election")
	identity := flag.String("identity", "", "of this campaigner")
	term := flag.Duration("term", 3*time.Second, "TermLength")
	skew := flag.Duration("skew", 0, "MaxClockSkew")
	address := flag.String("address", "10.0.0.9:1", "HostPort")
	count := flag.Bool("count", false, "tell of each request")
	flag.Parse()

	ctx := context.Background()
	client, err := storage.NewClient(ctx, option.WithHTTPClient(&http.Client{Transport: numbered{*count}}))
	must(err)
	config := leaderelection.Config{
		Decider:      gcs.NewDecider(client, *bucket, *object),
		LeaderID:     *identity,
		HostPort:     []string{*address},
		TermLength:   *term,
		MaxClockSkew: *skew,
		OnElected: func(ctx context.Context, term *leaderelection.TimeView) {
			fmt.Println("won")
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if term.ValueInFuture() {
					fmt.Println("tick")
				} else {
					fmt.Println("context")
				}
			}
		},
		OnOusting:     func(context.Context) { fmt.Println("lost") },
		LeaderChanged: func(_ context.Context, now entry.RaceEntry) { fmt.Println("sees", now.LeaderID) },
	}
	for {
		err := config.Acquire(ctx)
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(100 * time.Millisecond)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
