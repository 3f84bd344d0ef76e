package election

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

	"github.com/noonlock/noonlock"
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
	ps    *Partitions
	lease *lock.Lease

	owned   map[int]*work // by index; of the goroutine of Run
	version atomic.Uint64 // of owned, at the server
	wake    chan struct{} // receives a value when a call has something to do
}

// A work is one leadership of a partition here.
type work struct {
	Partition
	session  *session
	before   *work // earlier work that has not returned; guarded by Partitions.mu
	cancel   context.CancelCauseFunc
	stopped  atomic.Pointer[stop] // nil: neither given up nor lost
	returned chan struct{}
}

// A stop is the end of work whose session continues.
type stop struct {
	at    time.Time
	cause error // errMoved or lockcore.ErrLeaseLost
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

// partitionLabel is the kind of a session's lease in metrics.
const partitionLabel = "partitions"

func (s *session) Label() string { return partitionLabel }

// Noticed implements lock.Noticer.
func (s *session) Noticed(*lock.Attempt) { s.nudge() }

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) Err() error { return s.lease.Err() }

func (s *session) request(a *lock.Attempt, mode string, ttl time.Duration, returned string) wire.Request {
	e := s.ps.election
	keys := wire.Keys(e.keys.parts)
	if mode != "renew" { // only with one key are leases renewed while a slot of a cluster moves
		keys = wire.Keys(e.keys.parts, e.keys.fence, a.Tomb())
	}
	return e.scripts.share.Call(keys, a.Value(), mode, ttl.Milliseconds(), s.ps.n, s.version.Load(), returned, e.keys.shares)
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
	ps       *Partitions
	deadline *stopping.Deadline
	pauses   retry.Backoff // after lost sessions
}

func (x *sharing) Prepare(ctx context.Context) error {
	e := x.ps.election
	return e.failed("join the partitions of", e.lock.CheckRights(ctx, lock.NeedsOf(x.ps.partitionNeeds)))
}

// Campaign joins the set.
func (x *sharing) Campaign(ctx context.Context) (*session, error) {
	ps := x.ps
	s := &session{Kind: ps.election.lock.Client().Mutex(), ps: ps, owned: map[int]*work{}, wake: make(chan struct{}, 1)}
	script := ps.election.scripts.share
	lease, err := ps.election.lock.Hold(ctx, s, func(a *lock.Attempt) wire.Request {
		return s.request(a, "join", a.TTL(), "")
	}, func(answer any) (token uint64, granted bool, err error) {
		list, _ := answer.([]any)
		switch {
		case len(list) == 2 && list[0] == int64(1):
			token, err = strconv.ParseUint(wire.Text(list[1]), 10, 64)
			return token, err == nil, err
		case len(list) == 2 && list[0] == int64(-1):
			err = &noonlock.ConfigError{Package: "election", Field: "n", Value: strconv.Itoa(ps.n), Rule: fmt.Sprintf("%d, which the live replicas of %q share; stop them all to change it", list[1], ps.name)}
			ps.end(err)
			return 0, false, err
		case len(list) == 1 && list[0] == int64(-2):
			return 0, false, lockcore.ErrNotAcquired
		}
		return 0, false, script.OddReply(answer)
	})
	if err != nil {
		return nil, ps.election.failed("join the partitions of", err)
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
	ps, me := x.ps, " "+strconv.FormatUint(s.lease.Token(), 10)+" "
	ps.log.Info("sharing partitions", "session", s.lease.Token())
	defer ps.election.lock.Watch(ps.election.keys.shares, func(sessions string) {
		if sessions == "" || strings.Contains(sessions, me) {
			s.nudge()
		}
	})()
	unhook := context.AfterFunc(run, s.nudge)
	defer unhook()
	ended := s.lease.Context().Done()
	failures := retry.Pauses(50*time.Millisecond, ps.cfg.RetryPeriod)
	for idle := 0; ; idle++ {
		leaves := run.Err() != nil
		if s.lease.Err() != nil {
			late := time.NewTimer(ps.cfg.RetryPeriod)
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
			lock.Log(ps.log.V(1), err, "cannot share partitions; retrying")
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
	ps := x.ps
	var texts []string
	var returned []*work
	for _, w := range s.owned {
		if w.over() {
			returned = append(returned, w)
			texts = append(texts, fmt.Sprint(w.Index, ":", w.Token))
		}
	}
	bound, unbind := s.lease.Bind(context.WithoutCancel(run))
	defer unbind()
	ctx, cancel := x.deadline.Context(bound, x.deadline.Last())
	defer cancel()
	e := ps.election
	request := func(mode string) wire.Request {
		return s.request(s.lease.Attempt(), mode, e.lock.TTL(), strings.Join(texts, " "))
	}
	r := request("leave")
	if !leaves {
		r = request("call").Granting(func(answer any) bool {
			list, _ := answer.([]any)
			return len(list) > 4
		})
	}
	answer, err := e.lock.Commit(ctx, r)
	delay := lock.DelayOf(err)
	if delay != nil { // what the server has lost must stop before the delay ends
		r = request("give")
		answer, err = e.lock.Commit(ctx, r)
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
		delete(s.owned, w.Index)
		ps.metrics.released.Inc()
	}
	lost := 0
	for index, w := range s.owned {
		if token, ok := listed[index]; token != w.Token && (ok || list[0] == int64(2)) {
			w.stop(lockcore.ErrLeaseLost)
			delete(s.owned, index)
			lost++
		}
	}
	if lost > 0 {
		ps.lost(lockcore.ErrLeaseLost, lost)
	}
	// The version is that of the newest grant, or newer. A partition with an older token was given back before the
	// server lost that, and others may have led it since. It needs a new token.
	known := s.version.Swap(version)
	begun := 0
	for index, token := range listed {
		if s.owned[index] == nil {
			x.begin(run, s, Partition{index, token}, token <= known)
			begun++
		}
	}
	stopping := s.giveUp(int(surplus))
	if did = begun+stopping+len(returned)+lost > 0; did {
		ps.log.Info("share of partitions changed", "leads", len(s.owned), "gained", begun, "released", len(returned), "stopping", stopping)
	}
	switch next = time.Duration(left)*time.Millisecond + time.Millisecond; {
	case delay != nil:
		next = delay.Left
	case left < 0:
		next = ps.cfg.LeaseDuration
	}
	return did, next, nil
}

// errMoved is the cause of the context of work whose partition another replica is to lead.
var errMoved = errors.New("election: the partition is another replica's share")

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
	slices.SortFunc(at, func(a, b *work) int { return cmp.Compare(b.Token, a.Token) })
	for ; stopped < surplus && stopped < len(at); stopped++ {
		at[stopped].stop(errMoved)
	}
	return stopped
}

// begin begins the work of a partition, after earlier work of it here has returned. With giveBack, it then only
// returns the partition.
func (x *sharing) begin(run context.Context, s *session, p Partition, giveBack bool) {
	ps := x.ps
	chosen, stop := context.WithCancelCause(run)
	ctx, unbind := s.lease.Part(p.Token).Bind(chosen)
	w := &work{Partition: p, session: s, cancel: stop, returned: make(chan struct{})}
	if giveBack {
		w.stop(errMoved)
	}
	ps.mu.Lock()
	before := ps.works[p.Index]
	w.before = before
	ps.works[p.Index] = w
	ps.mu.Unlock()
	s.owned[p.Index] = w
	ps.metrics.gained.Inc()
	go func() {
		defer func() {
			unbind()
			stop(nil)
			ps.mu.Lock()
			if ps.works[p.Index] == w {
				delete(ps.works, p.Index)
			}
			ps.mu.Unlock()
			close(w.returned)
			s.nudge()
		}()
		if before != nil {
			<-before.returned
			ps.mu.Lock()
			w.before = nil
			ps.mu.Unlock()
		}
		guarded(func() {
			ps.metrics.led.Inc()
			defer ps.metrics.led.Dec()
			if ctx.Err() == nil {
				ps.lead(ctx, p)
			}
			<-ctx.Done() // lead may only have started something that stops with ctx
		}, func(why error) {
			ps.log.Error(errCallback, "the work of a partition panicked or called runtime.Goexit; ending Run", "partition", p.Index)
			ps.end(why)
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
	switch ps := x.ps; {
	case lost != nil:
		ps.lost(lost, len(s.owned))
	case err != nil:
		lock.Log(ps.log, err, "partitions not released; others lead them when the lease ends", "led", len(s.owned))
	default:
		ps.log.Info("no longer sharing partitions")
	}
}

// lost logs and counts partitions that are lost.
func (ps *Partitions) lost(cause error, n int) {
	ps.metrics.lost.Add(float64(n))
	ps.log.Error(cause, "partitions lost", "led", n)
}

// Next returns the pause after a lost session. Meanwhile, others lead the partitions whose work here hangs.
func (x *sharing) Next(_ error, held time.Duration) (pause time.Duration, again bool) {
	if len(x.ps.working()) > 0 {
		return x.ps.cfg.LeaseDuration, true
	}
	if held > x.ps.cfg.LeaseDuration {
		x.pauses.Reset()
	}
	return x.pauses.NextBackOff(), true
}

// partitionMetrics are those of one set of partitions.
type partitionMetrics struct {
	led                    prometheus.Gauge
	gained, released, lost prometheus.Counter
}

func newPartitionMetrics(set *registry.Set, name string) (*partitionMetrics, error) {
	led := set.Gauges("noonlock_partitions_led", "Partitions that this process leads.", "name")
	moves := set.Counters("noonlock_partitions_total",
		"Partitions whose lead began here (gained), ended voluntarily (released), or ended involuntarily (lost).", "name", "event")
	if err := set.Err(); err != nil {
		return nil, err
	}
	return &partitionMetrics{
		led: led.WithLabelValues(name), gained: moves.WithLabelValues(name, "gained"),
		released: moves.WithLabelValues(name, "released"), lost: moves.WithLabelValues(name, "lost"),
	}, nil
}
