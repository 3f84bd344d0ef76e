// Command manager is a controller-runtime manager whose leader is elected with Redis. Start
// it in two or three terminals, and end the leader:
//
//	go run ./example/manager -redis redis://127.0.0.1:6379 -identity one
//
// It needs no Kubernetes: the leader's work is to log a line every few seconds. A manager with
// controllers is created in the same way, with the rest.Config of its cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

func main() {
	url := flag.String("redis", "redis://127.0.0.1:6379", "URL of Redis")
	identity := flag.String("identity", "", "name of this replica (default: the host name and a random suffix)")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), *url, *identity); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// run returns when ctx ends or the leadership is lost. Then the process must end, since a
// manager cannot be started twice.
func run(ctx context.Context, url, identity string) error {
	log := funcr.New(func(_, line string) { fmt.Println(time.Now().Format("15:04:05.000"), line) }, funcr.Options{})
	ctrl.SetLogger(log)

	options, err := redisurl.Parse(url)
	if err != nil {
		return err
	}
	client, err := lockcore.NewFromOptions(options, lockcore.Config{Identity: identity})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))

	// An existing manager needs only this lock and LeaderElectionResourceLockInterface below.
	lock, err := clientgo.NewLock(client, "default/clock", clientgo.Config{})
	if err != nil {
		return err
	}

	// Without controllers and caches, no request is sent to the API server.
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,

		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(clock{lock, log.WithName(lock.Identity())}); err != nil {
		return err
	}
	log.Info("campaigning", "lock", lock.Describe(), "identity", lock.Identity())
	return mgr.Start(ctx)
}

// A clock logs a line every few seconds while its manager leads.
type clock struct {
	lock *clientgo.Lock
	log  logr.Logger
}

// Start is called when this replica leads. The leadership is released after it has returned.
func (c clock) Start(ctx context.Context) error {
	ctx, stop := c.lock.Bind(ctx) // done before another replica may lead, even after a pause
	defer stop()
	c.log.Info("leading")
	defer c.log.Info("stopped")
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if ctx.Err() != nil { // after a pause, the tick may come first
				return context.Cause(ctx)
			}
			c.log.Info("still leading")
		case <-ctx.Done():
			return nil
		}
	}
}
