package election_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
)

// A scrape blocks in each collector. A leading elector is renewed and resigns, and another
// elector can be created and leads.
//
// Caught mutants: the Vecs of client_golang.
func TestFault63_ScrapeThatHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		reg := &stuckRegisterer{Registerer: prometheus.NewRegistry()}
		c := e.ClientWith(e.Direct(), lockcore.Config{Registerer: reg, Clock: e.Bubble.Clock()})
		cfg := quick("")
		cfg.Registerer = reg
		a := e.replica(c, cfg)
		a.run().leads(1)
		goOn := reg.scrape()
		e.Pass(10 * leaseDuration)
		if !a.le.IsLeader() {
			t.Error("it does not lead any more")
		}
		leads := make(chan struct{})
		second, err := election.NewLeaderElector(c, "another", election.Callbacks{
			OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {},
		}, cfg)
		must(e, err)
		ctx, cancel := context.WithCancel(e.Context())
		ended := make(chan error, 1)
		go func() { ended <- second.Run(ctx) }()
		<-leads
		cancel()
		must(e, <-ended)
		must(e, a.le.Resign(e.Context()))
		a.leads(2)
		a.stop()
		a.wait()
		goOn()
	})
}

// A stuckRegisterer scrapes each collector. The scrape takes one metric, and then none
// until the end of the test.
type stuckRegisterer struct {
	prometheus.Registerer
	collectors []prometheus.Collector
}

func (r *stuckRegisterer) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registerer.Register(c)
}

// scrape starts the scrapes. The function that it returns lets them continue.
func (r *stuckRegisterer) scrape() (goOn func()) {
	var channels []chan prometheus.Metric
	for _, c := range r.collectors {
		ch := make(chan prometheus.Metric)
		channels = append(channels, ch)
		go func() {
			defer close(ch)
			c.Collect(ch)
		}()
	}
	synctest.Wait()
	return func() {
		for _, ch := range channels {
			for range ch {
			}
		}
	}
}
