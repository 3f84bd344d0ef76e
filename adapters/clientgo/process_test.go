package clientgo_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/noonlock/noonlock/internal/servers"
)

// A manager of controller-runtime connects to its API server only for requests. Without controllers
// there are none, so an address without a server is sufficient, with a mapper that needs no discovery.

func noAPIServer() *rest.Config { return &rest.Config{Host: "http://127.0.0.1:1"} }

func noMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return meta.NewDefaultRESTMapper(nil), nil
}

func noMetrics() metricsserver.Options { return metricsserver.Options{BindAddress: "0"} }

// leaderWork is a Runnable that runs while the manager leads.
type leaderWork func(ctx context.Context) error

func (w leaderWork) Start(ctx context.Context) error { return w(ctx) }

func (leaderWork) NeedLeaderElection() bool { return true }

// The leading process is killed. The next one leads after the lease has expired, counted from the last
// renewal, and not earlier.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	for _, role := range []string{electorRole, managerRole} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			look := e.lock("onlooker")
			first := e.startActor(role, "first")
			first.hear("started")
			second := e.startActor(role, "second")
			if role == electorRole {
				second.hear("leader first")
			} else {
				second.hear("ready")
			}
			acquired, _ := e.get(look)
			e.Until("it was renewed", func() bool { // so that the Create is not the last write that the other one has read
				now, _ := e.get(look)
				return !now.RenewTime.Equal(&acquired.RenewTime)
			})
			must(t, first.Cmd.Process.Signal(syscall.SIGKILL))
			killed := time.Now()
			first.WaitForEnd()
			last, _ := e.get(look)
			if last.HolderIdentity != "first" {
				t.Fatalf("the record says %+v", last)
			}
			led := second.hear("started")
			if since := led.Sub(last.RenewTime.Time); since < brisk().lease {
				t.Errorf("led %v after the last renewal, within the lease", since)
			}
			if now, _ := e.get(look); now.HolderIdentity != "second" || now.LeaderTransitions != 1 {
				t.Errorf("the record says %+v", now)
			}
			servers.Count(t, "clientgo, %s killed: the successor led %d ms after it, LeaseDuration %v, RetryPeriod %v",
				role, led.Sub(killed).Milliseconds(), brisk().lease, brisk().retry)
		})
	}
}

// The leading process receives SIGTERM. Its work ends first, then it releases the record, and the next
// process need not wait for the lease.
func TestLeaderEnds(t *testing.T) {
	t.Parallel()
	for _, role := range []string{electorRole, managerRole} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			first := e.startActor(role, "first")
			first.hear("started")
			second := e.startActor(role, "second")
			if role == electorRole {
				second.hear("leader first")
			} else {
				second.hear("ready")
			}
			second.silent("started")
			must(t, first.Cmd.Process.Signal(syscall.SIGTERM))
			first.hear("stopped")
			first.hear("done")
			second.hear("started")
			now, _ := e.get(e.lock("onlooker"))
			if now.HolderIdentity != "second" || now.LeaderTransitions != 1 {
				t.Errorf("the record says %+v", now)
			}
		})
	}
}

// The server is down for longer than a lease. The manager ends with an error, as always with
// controller-runtime. A manager that is started when the server is back leads.
func TestManagerLosesTheServer(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	first := e.startActor(managerRole, "first")
	first.hear("started")
	e.Real.Pause()
	first.hear("error leader election lost")
	e.Real.Resume()
	e.startActor(managerRole, "first").hear("started")
}

// Two managers run in one process until they end. The lock does not prevent a manager from starting or
// stopping.
func TestManagersHandOver(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	type started struct {
		who  string
		stop context.CancelFunc
	}
	leads := make(chan started, 2)
	var done [2]chan error
	for i, who := range []string{"a", "b"} {
		m, err := newManager(e.lock(who))
		must(t, err)
		ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.Background(), logr.Discard()))
		t.Cleanup(cancel)
		must(t, m.Add(leaderWork(func(ctx context.Context) error {
			leads <- started{who, cancel}
			<-ctx.Done()
			return nil
		})))
		done[i] = make(chan error, 1)
		go func() { done[i] <- m.Start(ctx) }()
	}
	first := <-leads
	select {
	case second := <-leads:
		t.Fatalf("%s leads at the same time as %s", second.who, first.who)
	default:
	}
	first.stop()
	second := <-leads
	second.stop()
	for i := range done {
		must(t, <-done[i])
	}
	if holder := e.holder(e.lock("c")); holder != "" || second.who == first.who {
		t.Errorf("in the end %q holds it, %s followed %s", holder, second.who, first.who)
	}
}
