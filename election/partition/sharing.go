package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A session is this replica as a member of a set of partitions, from a join to the end of its lease. It is the
// lock.Kind of its attempt. parts_share.lua has its states at the server. A partition has these here:
//
//	(none) ──a call got it──► at work ──given up, or Run ends──► stopping ──the work returned──► returned
//	   ▲                                                                                           │
//	   └──────────────────────────────────────── a call reported it ◄──────────────────────────────┘
//
// Only the goroutine of Run makes calls, one after the other. A call that was not answered is repeated, and its
// partitions are known when a call is answered. They count as owned until a call has reported them. If a renewal
// or a call finds another version at the server, that has lost changes, or a reply was lost: the answer to the call
// then lists all partitions of the session. Others are lost, wherever their work is.
type session struct {
	lock.Kind
	r     *Runner
	lease *lock.Lease

	owned   map[int]*work // by index; of the goroutine of Run
	version atomic.Uint64 // of owned, at the server
	wake    chan struct{} // receives a value when a call has something to do
}

// A work is one leadership of a partition here.
type work struct {
	index    int
	token    uint64
	session  *session
	before   *work // earlier work that has not returned; guarded by Runner.mu
	cancel   context.CancelCauseFunc
	stopped  atomic.Pointer[stop] // nil: neither given up nor lost
	returned chan struct{}
}

// A stop is the end of work whose session continues.
type stop struct {
	at    time.Time
	cause error // ErrMoved or lockcore.ErrLeaseLost
}

func (w *work) stop(cause error) {
	w.stopped.Store(&stop{time.Now(), cause})
	w.cancel(cause)
}

func (w *work) over() bool {
	select {
	case <-w.returned:
		return true
	default:
		return false
	}
}

// Label is the kind of a session's lease in metrics.
func (s *session) Label() string { return "partitions" }

// Noticed implements lock.Noticer.
func (s *session) Noticed(*lock.Attempt, int64) { s.nudge() }

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) Err() error { return s.lease.Err() }

func (s *session) request(a *lock.Attempt, mode string, ttl time.Duration, returned string) wire.Request {
	set := s.r.set
	keys := wire.Keys(set.parts)
	if mode != "renew" { // only with one key are leases renewed while a slot of a cluster moves
		keys = wire.Keys(set.parts, set.fence, a.Tomb())
	}
	return set.share.Call(keys, a.Value(), mode, ttl.Milliseconds(), s.r.n, s.version.Load(), returned, set.channel)
}

// Renewal implements lock.Kind.
func (s *session) Renewal(a *lock.Attempt) wire.Request { return s.request(a, "renew", a.TTL(), "") }

// Release implements lock.Kind.
func (s *session) Release(a *lock.Attempt, withdraw bool) wire.Request {
	if withdraw {
		return s.request(a, "quit", a.TombTTL(), "")
	}
	return s.request(a, "quit", 0, "")
}

// sharing is one Run. It implements holding.Holder.
type sharing struct {
	*Runner
	deadline *stopping.Deadline
	pauses   retry.Backoff // after lost sessions
}

func (x *sharing) Prepare(ctx context.Context) error {
	return x.set.failed("join", x.set.lock.CheckRights(ctx, lock.NeedsOf(x.set.needs)))
}

// Campaign joins the set.
func (x *sharing) Campaign(ctx context.Context) (*session, error) {
	s := &session{Kind: x.set.lock.Client().Mutex(), r: x.Runner, owned: map[int]*work{}, wake: make(chan struct{}, 1)}
	lease, err := x.set.lock.Hold(ctx, s, func(a *lock.Attempt) wire.Request {
		return s.request(a, "join", a.TTL(), "")
	}, func(answer any) (token uint64, granted bool, err error) {
		list, _ := answer.([]any)
		switch {
		case len(list) == 2 && list[0] == int64(1):
			token, err = strconv.ParseUint(wire.Text(list[1]), 10, 64)
			return token, err == nil, err
		case len(list) == 2 && list[0] == int64(-1):
			err = refusal("n", strconv.Itoa(x.n), fmt.Sprintf("%d, which the live replicas of %q share; stop them all to change it", list[1], x.set.name))
			x.end(err)
			return 0, false, err
		case len(list) == 1 && list[0] == int64(-2):
			return 0, false, lockcore.ErrNotAcquired
		}
		return 0, false, x.set.share.OddReply(answer)
	})
	if err != nil {
		return nil, x.set.failed("join", err)
	}
	s.lease = lease
	s.version.Store(lease.Token())
	return s, nil
}

// After idleCalls that changed nothing, idlePause is the shortest time between two calls: messages may be forged.
const (
	idleCalls = 3
	idlePause = 10 * time.Millisecond
)

// Work makes calls until the session has ended, or until it has given everything back after the end of run.
func (x *sharing) Work(run context.Context, s *session, _ time.Duration) {
	me := " " + strconv.FormatUint(s.lease.Token(), 10) + " "
	x.log.Info("sharing partitions", "session", s.lease.Token())
	defer x.set.lock.Watch(x.set.channel, func(sessions string) {
		if sessions == "" || strings.Contains(sessions, me) {
			s.nudge()
		}
	})()
	unhook := context.AfterFunc(run, s.nudge)
	defer unhook()
	ended := s.lease.Context().Done()
	failures := retry.Pauses(50*time.Millisecond, x.period)
	for idle := 0; ; idle++ {
		leaves := run.Err() != nil
		if s.lease.Err() != nil {
			late := time.NewTimer(x.period)
			defer late.Stop()
			for !s.idle() && run.Err() == nil {
				select {
				case <-s.wake:
				case <-late.C:
					return
				}
			}
			return
		}
		if leaves && s.idle() {
			return // a release gives everything back
		}
		did, pause, err := x.call(run, s, leaves)
		switch {
		case err == nil:
			failures.Reset()
		case s.lease.Err() != nil:
			continue
		default:
			lock.Log(x.log.V(1), err, "cannot share partitions; retrying")
			pause = failures.NextBackOff()
		}
		if did {
			idle = 0
		} else if idle >= idleCalls {
			retry.Sleep(run, idlePause, ended)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ended:
		}
		timer.Stop()
	}
}

// call reports what has returned, and gets what is this replica's share. did reports whether something has
// changed, and next is when the lease of another replica may end.
func (x *sharing) call(run context.Context, s *session, leaves bool) (did bool, next time.Duration, err error) {
	var texts []string
	var returned []*work
	for _, w := range s.owned {
		if w.over() {
			returned = append(returned, w)
			texts = append(texts, fmt.Sprint(w.index, ":", w.token))
		}
	}
	bound, unbind := s.lease.Bind(context.WithoutCancel(run))
	defer unbind()
	ctx, cancel := x.deadline.Context(bound, x.deadline.Last())
	defer cancel()
	request := func(mode string) wire.Request {
		return s.request(s.lease.Attempt(), mode, x.set.lock.TTL(), strings.Join(texts, " "))
	}
	r := request("leave")
	if !leaves {
		r = request("call").Granting(func(answer any) bool {
			list, _ := answer.([]any)
			return len(list) > 4
		})
	}
	answer, err := x.set.lock.Commit(ctx, r)
	delay := lock.DelayOf(err)
	if delay != nil { // what the server has lost must stop before the delay ends
		r = request("give")
		answer, err = x.set.lock.Commit(ctx, r)
	}
	if err != nil {
		return false, 0, err
	}
	list, _ := answer.([]any)
	if len(list) == 1 && list[0] == int64(0) {
		s.lease.Lose()
		return false, 0, lockcore.ErrLeaseLost
	}
	if len(list) < 4 || len(list)%2 == 1 {
		return false, 0, r.OddReply(answer)
	}
	version, err := strconv.ParseUint(wire.Text(list[1]), 10, 64)
	left, _ := list[2].(int64)
	surplus, _ := list[3].(int64)
	listed := map[int]uint64{} // tokens
	for i := 4; i < len(list); i += 2 {
		index, err1 := strconv.Atoi(wire.Text(list[i]))
		token, err2 := strconv.ParseUint(wire.Text(list[i+1]), 10, 64)
		err = errors.Join(err, err1, err2)
		listed[index] = token
	}
	if err != nil {
		return false, 0, r.OddReply(answer)
	}
	for _, w := range returned {
		delete(s.owned, w.index)
		x.metrics.released.Inc()
	}
	lost := 0
	for index, w := range s.owned {
		if token, ok := listed[index]; token != w.token && (ok || list[0] == int64(2)) {
			w.stop(lockcore.ErrLeaseLost)
			delete(s.owned, index)
			lost++
		}
	}
	if lost > 0 {
		x.lost(lockcore.ErrLeaseLost, lost)
	}
	// The version is that of the newest grant, or newer. A partition with an older token was given back before the
	// server lost that, and others may have led it since. It needs a new token.
	known := s.version.Swap(version)
	begun := 0
	for index, token := range listed {
		if s.owned[index] == nil {
			x.begin(run, s, index, token, token <= known)
			begun++
		}
	}
	stopping := s.giveUp(int(surplus))
	if did = begun+stopping+len(returned)+lost > 0; did {
		x.log.Info("share of partitions changed", "leads", len(s.owned), "gained", begun, "released", len(returned), "stopping", stopping)
	}
	switch next = time.Duration(left)*time.Millisecond + time.Millisecond; {
	case delay != nil:
		next = delay.Left
	case left < 0:
		next = x.cfg.LeaseDuration
	}
	return did, next, nil
}

// giveUp stops the work of the newest partitions, so that so many are given back with those that stop already. It
// returns how many it has stopped.
func (s *session) giveUp(surplus int) (stopped int) {
	var at []*work
	for _, w := range s.owned {
		if w.stopped.Load() == nil {
			at = append(at, w)
		}
	}
	surplus -= len(s.owned) - len(at)
	slices.SortFunc(at, func(a, b *work) int { return cmp.Compare(b.token, a.token) })
	for ; stopped < surplus && stopped < len(at); stopped++ {
		at[stopped].stop(ErrMoved)
	}
	return stopped
}

// begin begins the work of a partition, after earlier work of it here has returned. With giveBack, it then only
// returns the partition.
func (x *sharing) begin(run context.Context, s *session, index int, token uint64, giveBack bool) {
	chosen, stop := context.WithCancelCause(run)
	ctx, unbind := s.lease.Part(token).Bind(chosen)
	w := &work{index: index, token: token, session: s, cancel: stop, returned: make(chan struct{})}
	if giveBack {
		w.stop(ErrMoved)
	}
	x.mu.Lock()
	before := x.works[index]
	w.before = before
	x.works[index] = w
	x.mu.Unlock()
	s.owned[index] = w
	x.metrics.gained.Inc()
	go func() {
		defer func() {
			unbind()
			stop(nil)
			x.mu.Lock()
			if x.works[index] == w {
				delete(x.works, index)
			}
			x.mu.Unlock()
			close(w.returned)
			s.nudge()
		}()
		if before != nil {
			<-before.returned
			x.mu.Lock()
			w.before = nil
			x.mu.Unlock()
		}
		holding.Guarded(func() {
			x.metrics.led.Inc()
			defer x.metrics.led.Dec()
			if ctx.Err() == nil {
				x.lead(ctx, index)
			}
			<-ctx.Done() // lead may only have started something that stops with ctx
		}, func(why error) {
			x.log.Error(holding.ErrCallback, "the work of a partition panicked or called runtime.Goexit; ending Run", "partition", index)
			x.end(why)
		})
	}()
}

// Release ends the session. Work that has not returned after the lease expired has the rest of its time to stop.
func (x *sharing) Release(ctx context.Context, s *session) error {
	if s.lease.Err() != nil && !s.idle() {
		return s.lease.Err()
	}
	return s.lease.Unlock(ctx)
}

// idle reports whether all work of the session has returned.
func (s *session) idle() bool {
	for _, w := range s.owned {
		if !w.over() {
			return false
		}
	}
	return true
}

func (x *sharing) Released(s *session, lost, err error) {
	switch {
	case lost != nil:
		x.lost(lost, len(s.owned))
	case err != nil:
		lock.Log(x.log, err, "partitions not released; others lead them when the lease ends", "led", len(s.owned))
	default:
		x.log.Info("no longer sharing partitions")
	}
}

// lost logs and counts partitions that are lost.
func (r *Runner) lost(cause error, n int) {
	r.metrics.lost.Add(float64(n))
	r.log.Error(cause, "partitions lost", "led", n)
}

// Next returns the pause after a lost session. Meanwhile, others lead the partitions whose work here hangs.
func (x *sharing) Next(_ error, held time.Duration) (pause time.Duration, again bool) {
	if len(x.working()) > 0 {
		return x.cfg.LeaseDuration, true
	}
	if held > x.cfg.LeaseDuration {
		x.pauses.Reset()
	}
	return x.pauses.NextBackOff(), true
}

// metrics are those of one set of partitions.
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
