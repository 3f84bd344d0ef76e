package clientgo_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// leaderWork is a Runnable that runs while the manager leads.
type leaderWork func(ctx context.Context) error

func (w leaderWork) Start(ctx context.Context) error { return w(ctx) }

func (leaderWork) NeedLeaderElection() bool { return true }

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
	lease, deadline, retry := 3*time.Second, 2*time.Second, 250*time.Millisecond // the shortest ones for a slow machine
	// It connects to its API server only for requests. Without controllers there are none, and this mapper needs no discovery.
	ctrlManager, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: e.lock(identity),
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &lease, RenewDeadline: &deadline, RetryPeriod: &retry,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
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
	ctrl.SetLogger(logr.Discard())
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

// A program with controller-runtime may pass its registry to an elector of package election. The metric
// of the leader then exists already, and is shared.
func TestElectorOnControllerRuntimesRegistry(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		status := func() float64 {
			e.Helper()
			value, found := testenv.Series(e, ctrlmetrics.Registry, "leader_election_master_status", "name", "one")
			if !found {
				return -1
			}
			return value
		}
		c := e.ClientWith(e.Direct(), lockcore.Config{Registerer: ctrlmetrics.Registry})
		le, err := election.NewLeaderElector(c, "one", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {},
		}, election.Config{})
		must(e, err)
		ctx, cancel := context.WithCancel(e.Context())
		ended := make(chan error, 1)
		go func() { ended <- le.Run(ctx) }()
		e.Until("it leads", func() bool { return status() == 1 })
		cancel()
		must(e, <-ended)
		testenv.Equal(e, "the status in the end", status(), 0)
	})
}
