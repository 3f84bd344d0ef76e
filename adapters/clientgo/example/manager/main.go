// Command manager is a controller-runtime manager whose leader is elected over
// Redis. Start it in two or three terminals, and end the one that leads:
//
//	go run ./example/manager -redis 127.0.0.1:6379 -identity one
//
// It needs no Kubernetes: the work of its leader is to tell the time. A manager
// with controllers is made the same way, with the rest.Config of its cluster in
// place of the one here.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/lockcore"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "host:port of the Redis server")
	identity := flag.String("identity", "", "who this replica is; default: the host name and a random suffix")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), *addr, *identity); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// run returns when ctx ends or the lead is lost. The process must end then: a
// manager cannot be started twice.
func run(ctx context.Context, addr, identity string) error {
	say := funcr.New(func(_, line string) { fmt.Println(time.Now().Format("15:04:05.000"), line) }, funcr.Options{})
	ctrl.SetLogger(say)

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client, err := lockcore.New(rdb, lockcore.Config{Identity: identity})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))

	// This, and the line below that passes it on, is all that changes for an
	// existing manager.
	lock, err := clientgo.NewLock(client, "default/clock", clientgo.Config{})
	if err != nil {
		return err
	}

	// Without controllers and caches nobody asks the API server anything.
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
	if err := mgr.Add(clock{lock, say.WithName(lock.Identity()).Info}); err != nil {
		return err
	}
	say.Info("standing for election", "lock", lock.Describe(), "identity", lock.Identity())
	return mgr.Start(ctx)
}

// A clock tells the time while its manager leads.
type clock struct {
	lock *clientgo.Lock
	say  func(msg string, kv ...any)
}

// Start is called when this replica leads. The lead is given up when it has
// returned.
func (c clock) Start(ctx context.Context) error {
	ctx, stop := c.lock.Bind(ctx) // done before another may lead, also after a pause
	defer stop()
	c.say("leading")
	defer c.say("stopped")
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.say("still leading")
		case <-ctx.Done():
			return nil
		}
	}
}

// NeedLeaderElection is that only the leader runs it.
func (c clock) NeedLeaderElection() bool { return true }
