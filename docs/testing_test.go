package docs_test

import (
	"context"
	_ "embed"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

//go:embed testing_test.go
var testingFile string

func TestNightlyReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time is virtual in here, and begins at midnight UTC
		server := lockcoretest.NewRedis(t)
		ctx, cancel := context.WithCancel(t.Context())
		var replicas sync.WaitGroup
		defer replicas.Wait() // the bubble must not end before them
		defer cancel()
		var reports []time.Time
		report := func(_ context.Context, run singleton.Run) error {
			reports = append(reports, run.Tick) // one replica at a time
			return nil
		}
		for range 3 {
			runner := newRunner(t, server.Client(), report)
			replicas.Go(func() {
				if err := runner.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait() // until all work of this instant is done
		if len(reports) != 1 {
			t.Errorf("%d reports in a night: %v", len(reports), reports)
		}
	})
}

func newRunner(t *testing.T, rdb *redis.Client, work func(context.Context, singleton.Run) error) *singleton.Runner {
	t.Helper()
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	runner, err := singleton.NewRunner(client, singleton.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Add("report", "30 2 * * *", work, singleton.JobConfig{}); err != nil {
		t.Fatal(err)
	}
	return runner
}

func TestLeaderThatIsCutOffStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lockcoretest.NewRedis(t)
		network := lockcoretest.NewFaults() // of the first replica
		t.Cleanup(network.Close)
		ctx, cancel := context.WithCancel(t.Context())
		var replicas sync.WaitGroup
		defer replicas.Wait()
		defer cancel()
		leading := make(chan string)
		var stopped time.Time
		start := func(identity string, opt *redis.Options) {
			rdb := redis.NewClient(opt)
			t.Cleanup(func() { rdb.Close() })
			client, err := lockcore.New(rdb, lockcore.Config{Identity: identity})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close(context.Background()) })
			elector, err := election.NewLeaderElector(client, "orders", election.Callbacks{
				OnStartedLeading: func(ctx context.Context) {
					leading <- identity
					<-ctx.Done() // the work
					stopped = time.Now()
				},
				OnStoppedLeading: func() {},
			}, election.Config{})
			if err != nil {
				t.Fatal(err)
			}
			replicas.Go(func() {
				if err := elector.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		start("a", server.OptionsVia(network))
		if leader := <-leading; leader != "a" {
			t.Fatalf("%s leads", leader)
		}
		start("b", server.Options())
		time.Sleep(time.Minute)
		network.Partition()
		if leader := <-leading; leader != "b" {
			t.Fatalf("%s leads", leader)
		}
		if stopped.IsZero() || !stopped.Before(time.Now()) {
			t.Error("two led at one time")
		}
		network.Heal()
	})
}

var goCode = regexp.MustCompile("(?s)```go\n(.*?)```")
