package partition

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/retry"
)

// Errors for errors.Is.
var (
	// ErrMoved is the cause of the context of work whose partition another replica is to lead.
	ErrMoved = errors.New("partition: the partition is another replica's share")

	// ErrRunning is the error of Run while another Run of the Runner is running.
	ErrRunning = errors.New("partition: the runner is running")

	// ErrNotReady is the error of Ready, joined with the reason.
	ErrNotReady = errors.New("partition: not ready")

	// ErrOverdue is the error of Check, joined with the cause: the work of a partition has not returned.
	ErrOverdue = errors.New("partition: work has not returned in time")
)

// errHangs is the cause of ErrOverdue while the lease has not ended.
var errHangs = errors.New("partition: the work has not returned, so no other replica can lead the partition")

// A work is one leadership of a partition by this replica.
type work struct {
	index    int
	token    uint64
	lease    *lock.Lease // of the session
	earlier  *work       // unfinished earlier work of the partition; guarded by works.mu
	cancel   context.CancelCauseFunc
	stopped  atomic.Pointer[stop]
	returned chan struct{}
}

// A stop ends work while its session continues.
type stop struct {
	at    time.Time
	cause error // ErrMoved or lockcore.ErrLeaseLost
}

func (w *work) stop(cause error) {
	w.stopped.Store(&stop{time.Now(), cause})
	w.cancel(cause)
}

func (w *work) hasReturned() bool {
	select {
	case <-w.returned:
		return true
	default:
		return false
	}
}

// works are the work of a Runner, in all its Runs.
type works struct {
	lead    func(ctx context.Context, index int)
	log     logr.Logger
	metrics *metrics

	mu     sync.Mutex
	newest map[int]*work // by partition, until the work has returned
}

func newWorks(lead func(ctx context.Context, index int), log logr.Logger, m *metrics) works {
	return works{lead: lead, log: log, metrics: m, newest: map[int]*work{}}
}

// start starts the work of a partition as soon as earlier work of the partition has returned. The end of the work is
// signaled with wake. Work with giveBack only waits for the earlier work.
func (ws *works) start(run context.Context, crash *holding.Crash, lease *lock.Lease, index int, token uint64, giveBack bool, wake retry.Signal) *work {
	stopping, cancel := context.WithCancelCause(run)
	ctx, unbind := lease.ForPartition(token).Bind(stopping)
	w := &work{index: index, token: token, lease: lease, cancel: cancel, returned: make(chan struct{})}
	if giveBack {
		w.stop(ErrMoved)
	}
	ws.mu.Lock()
	earlier := ws.newest[index]
	w.earlier = earlier
	ws.newest[index] = w
	ws.mu.Unlock()
	ws.metrics.gained.Inc()
	go func() {
		defer func() {
			unbind()
			cancel(nil)
			ws.mu.Lock()
			if ws.newest[index] == w {
				delete(ws.newest, index)
			}
			ws.mu.Unlock()
			close(w.returned)
			wake.Send()
		}()
		if earlier != nil {
			<-earlier.returned
			ws.mu.Lock()
			w.earlier = nil
			ws.mu.Unlock()
		}
		crash.Guard(ws.log.WithValues("partition", index), "the work of a partition", func() {
			ws.metrics.led.Inc()
			defer ws.metrics.led.Dec()
			if ctx.Err() == nil {
				ws.lead(ctx, index)
			}
			<-ctx.Done() // lead may only have started something that stops with ctx
		})
	}()
	return w
}

// running returns the work that has not returned.
func (ws *works) running() (all []*work) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.newest {
		for ; w != nil; w = w.earlier {
			all = append(all, w)
		}
	}
	return all
}

type metrics struct {
	led                    prometheus.Gauge
	gained, released, lost prometheus.Counter
}

func newMetrics(set *registry.Set, name string) (*metrics, error) {
	led := set.Gauges("noonlock_partitions_led", "Partitions that this process leads.", "name")
	moves := set.Counters("noonlock_partitions_total",
		"Partitions whose lead began here (gained), ended voluntarily (released), or ended involuntarily (lost).", "name", "event")
	if err := set.Err(); err != nil {
		return nil, err
	}
	return &metrics{
		led: led.WithLabelValues(name), gained: moves.WithLabelValues(name, "gained"),
		released: moves.WithLabelValues(name, "released"), lost: moves.WithLabelValues(name, "lost"),
	}, nil
}
