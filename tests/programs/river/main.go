// Command river campaigns with the job queue River on PostgreSQL, whose clients elect one that keeps house: the rival of the
// benches.
//
//	river -url postgres://… -identity ID [-migrate]
//
// It prints "won" when it leads, and resigns on SIGTERM. All that its clients do besides an election is slowed to an hour.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// told prints "won": River tells nobody but its log.
type told struct{ slog.Handler }

func (told told) Handle(ctx context.Context, record slog.Record) error {
	if strings.HasSuffix(record.Message, "Gained leadership") {
		fmt.Println("won")
	}
	if record.Level < slog.LevelWarn {
		return nil
	}
	return told.Handler.Handle(ctx, record)
}

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type worker struct {
	river.WorkerDefaults[nothing]
}

func (worker) Work(context.Context, *river.Job[nothing]) error { return nil }

func main() {
	url := flag.String("url", "", "of the database")
	identity := flag.String("identity", "", "of this client")
	migrate := flag.Bool("migrate", false, "make the tables, and end")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, *url)
	must(err)
	driver := riverpgxv5.New(pool)
	if *migrate {
		migrator, err := rivermigrate.New(driver, nil)
		must(err)
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		must(err)
		return
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, worker{})
	handler := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})
	client, err := river.NewClient(driver, &river.Config{
		ID:                *identity,
		FetchPollInterval: time.Hour,
		Logger:            slog.New(told{handler}),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Workers:           workers,
	})
	must(err)
	must(client.Start(context.Background()))
	<-ctx.Done()
	must(client.Stop(context.Background()))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
