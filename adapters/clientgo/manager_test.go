package clientgo_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
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

// brisk has the shortest times that leave client-go's margins on a slow machine.
func brisk() timing {
	return timing{lease: 3 * time.Second, deadline: 2 * time.Second, retry: 250 * time.Millisecond}
}

// quietManagers disables the logs of controller-runtime. It must not run concurrently.
var quietManagers = sync.OnceFunc(func() { ctrl.SetLogger(logr.Discard()) })

// newManager returns a manager of controller-runtime without an API server.
func newManager(lock resourcelock.Interface) (ctrl.Manager, error) {
	quietManagers()
	tm := brisk()
	return ctrl.NewManager(noAPIServer(), ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &tm.lease, RenewDeadline: &tm.deadline, RetryPeriod: &tm.retry,
		Metrics:        noMetrics(),
		MapperProvider: noMapper,
	})
}

// A manager is one of controller-runtime that runs.
type manager struct {
	identity string
	stop     context.CancelFunc
	done     chan error // what Start returned
	worked   chan struct{}
}

// manage starts a manager. leads receives it when it leads.
func (e *env) manage(identity string, leads chan<- *manager) *manager {
	e.Helper()
	ctrlManager, err := newManager(e.lock(identity))
	must(e, err)
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.Background(), logr.Discard()))
	e.Cleanup(cancel)
	m := &manager{identity, cancel, make(chan error, 1), make(chan struct{})}
	must(e, ctrlManager.Add(leaderWork(func(ctx context.Context) error {
		leads <- m
		<-ctx.Done()
		close(m.worked)
		return nil
	})))
	go func() { m.done <- ctrlManager.Start(ctx) }()
	return m
}

// Two managers run until they end. The lock does not prevent a manager from starting or stopping.
// The work of the first one ends before the other one leads.
func TestManagersHandOver(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	leads := make(chan *manager, 2)
	all := []*manager{e.manage("a", leads), e.manage("b", leads)}
	first := <-leads
	select {
	case second := <-leads:
		t.Fatalf("%s leads at the same time as %s", second.identity, first.identity)
	default:
	}
	first.stop()
	second := <-leads
	select {
	case <-first.worked:
	default:
		t.Error("the first one still works")
	}
	if now, _ := e.get(e.lock("c")); now.HolderIdentity != second.identity || now.LeaderTransitions != 1 {
		t.Errorf("the record says %+v", now)
	}
	second.stop()
	for _, m := range all {
		must(t, <-m.done)
	}
	if holder := e.holder(e.lock("c")); holder != "" || second == first {
		t.Errorf("in the end %q holds it, %s followed %s", holder, second.identity, first.identity)
	}
}
