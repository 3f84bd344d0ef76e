// Package replica runs the ticks of jobs on this replica, for package singleton. A Replica has what its jobs share. A
// Job stays when its definition is replaced. A follower decides what this replica does next for one Job:
//
//	read the ledger -> claim the open runs that nobody holds -> plan the due ticks
//	  -> claim or skip -> start the run
//
// Between two steps its loop waits for the next tick, the end of another replica's lease, a
// message, the end of a run of this replica, or the next periodic read. The ledger's scripts
// decide; the state here only selects which request to send.
package replica

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/attempt"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/plan"
	"github.com/noonlock/noonlock/singleton/internal/slots"
)

// Config has the fields of a singleton.Config with the same names, checked.
type Config struct {
	Drain, ShutdownTimeout time.Duration
	MaxConcurrentRuns      int
}

// A Replica runs jobs in this process, and has what they share.
type Replica struct {
	// Wall is this machine's clock, for a metric only.
	Wall     func() time.Time
	Underway attempt.Underway

	client  *lockcore.Client
	cfg     Config
	log     logr.Logger
	reports *readiness.Reports
	metrics *metrics
	slots   *slots.Slots
	clock   serverClock

	mu      sync.Mutex
	running map[*Job]struct{}
}

// New returns a Replica without jobs. The error is one of the Registerer of the Client.
func New(client *lockcore.Client, cfg Config) (*Replica, error) {
	own := lock.Of(client)
	m, err := newMetrics(own.Metrics())
	return &Replica{
		Wall: time.Now, client: client, cfg: cfg, log: own.Logger(), metrics: m, slots: slots.New(cfg.MaxConcurrentRuns),
		reports: own.Reports("jobs", "ledger unavailable; ticks are delayed", "ledger available again"), running: map[*Job]struct{}{},
	}, err
}

// observe takes a sample of the server's clock. If the clock has stepped, other ticks may be due, or ledgers may be
// ahead of the clock, so all jobs are woken.
func (r *Replica) observe(now, sent, received time.Time) {
	if step := r.clock.observe(now, sent, received); step.Abs() >= time.Second {
		r.log.Info("server clock stepped, or this machine was suspended; following the server clock", "step", step)
		r.mu.Lock()
		for j := range r.running {
			j.post(event{})
		}
		r.mu.Unlock()
	}
	r.metrics.offset.Set(r.clock.offset(r.Wall()).Seconds())
}

// A Definition says when a job runs, what its work is, and where its ledger is.
type Definition struct {
	plan.Policy
	attempt.Limits
	Name   string
	Ledger *ledger.Ledger
	Work   func(ctx context.Context, run *ledger.Claim) error
}

// A Job is a job on this replica, with one definition at a time.
type Job struct {
	Ready   readiness.State
	wake    retry.Signal // causes a step
	replica *Replica
	metrics *jobMetrics

	mu         sync.Mutex
	definition Definition
	events     []event // since the last step
}

// An event is news about a job. Without any field, everything may have changed.
type event struct {
	updated   bool          // the definition was replaced
	returned  *ledger.Claim // run of this replica whose attempt is over
	end       *ledger.RunID // recorded end of a run
	succeeded bool          // outcome of end
}

// NewJob returns a job that does not run yet.
func (r *Replica) NewJob(d Definition) *Job {
	return &Job{wake: retry.NewSignal(), replica: r, metrics: r.metrics.job(d.Name), definition: d}
}

// Update replaces the definition.
func (j *Job) Update(d Definition) {
	j.mu.Lock()
	j.definition = d
	j.mu.Unlock()
	j.post(event{updated: true})
}

// Forget deletes the metrics of the job.
func (j *Job) Forget() { j.metrics.forget() }

func (j *Job) post(e event) {
	j.mu.Lock()
	j.events = append(j.events, e)
	j.mu.Unlock()
	j.wake.Send()
}

// news returns the events since the last call, and the present definition.
func (j *Job) news() ([]event, Definition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.events
	j.events = nil
	return events, j.definition
}
