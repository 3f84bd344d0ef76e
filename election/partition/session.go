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

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A session is the membership of this replica in a set, from a join to the end of its lease. It is the
// lock.Kind of its attempt. parts_share.lua has its states at the server. A partition has these here:
//
//	(none) ──a sync got it──► at work ──moved, or Run ends──► stopping ──the work returned──► returned
//	   ▲                                                                                         │
//	   └───────────────────────────────────── a sync reported it ◄───────────────────────────────┘
//
// Only the goroutine of Run syncs. A sync that was not answered is repeated. Partitions count as owned until a sync
// has reported them as returned. If a renewal or a sync finds another version at the server, the server has lost
// changes, or a reply was lost. The answer to the sync then lists all partitions of the session. The session loses
// every partition that is not listed.
type session struct {
	lock.Kind
	set   *Set
	n     int
	lease *lock.Lease

	owned   map[int]*work // by index; used by the goroutine of Run
	version atomic.Uint64 // version of owned, as the server last gave it
	wake    retry.Signal  // there is a reason to sync
}

func (s *session) Label() string { return "partitions" }

func (s *session) Noticed(*lock.Attempt, int64) { s.wake.Send() }

func (s *session) Err() error { return s.lease.Err() }

func (s *session) request(a *lock.Attempt, mode string, ttl time.Duration, returned string) wire.Request {
	keys := wire.Keys(s.set.parts)
	if mode != "renew" { // only requests with one key renew leases while a slot of a cluster moves
		keys = wire.Keys(s.set.parts, s.set.fence, a.Tomb())
	}
	return s.set.share.Call(keys, a.Value(), mode, ttl.Milliseconds(), s.n, s.version.Load(), returned, s.set.channel)
}

func (s *session) Renewal(a *lock.Attempt) wire.Request { return s.request(a, "renew", a.TTL(), "") }

func (s *session) Release(a *lock.Attempt, withdraw bool) wire.Request {
	if withdraw { // a late join must not begin the session again
		return s.request(a, "quit", a.TombTTL(), "")
	}
	return s.request(a, "quit", 0, "")
}

// join begins the session at the server. It ends Run if live replicas share another number of partitions.
func (s *session) join(ctx context.Context, crash *holding.Crash) (err error) {
	s.lease, err = s.set.lock.Hold(ctx, s, func(a *lock.Attempt) wire.Request {
		return s.request(a, "join", a.TTL(), "")
	}, func(answer any) (token uint64, granted bool, err error) {
		list, _ := answer.([]any)
		switch {
		case len(list) == 2 && list[0] == int64(1):
			token, err = strconv.ParseUint(wire.Text(list[1]), 10, 64)
			return token, err == nil, err
		case len(list) == 2 && list[0] == int64(-1):
			err = refusal("n", strconv.Itoa(s.n), fmt.Sprintf("%d, which the live replicas of %q share; stop them all to change it", list[1], s.set.name))
			crash.Fail(err, err)
			return 0, false, err
		case len(list) == 1 && list[0] == int64(-2):
			return 0, false, lockcore.ErrNotAcquired
		}
		return 0, false, s.set.share.OddReply(answer)
	})
	if err == nil {
		s.version.Store(s.lease.Token())
	}
	return err
}

// A share is the answer to a sync.
type share struct {
	version uint64
	tokens  map[int]uint64 // of new partitions, by index
	all     bool           // tokens has all partitions of the session
	surplus int            // partitions to give back
	next    time.Duration  // time until the next sync if no signal comes
}

// sync reports returned work and gets this replica's share.
func (s *session) sync(ctx context.Context, leaving bool, returned []*work) (sh share, err error) {
	var texts []string
	for _, w := range returned {
		texts = append(texts, fmt.Sprint(w.index, ":", w.token))
	}
	request := func(mode string) wire.Request {
		return s.request(s.lease.Attempt(), mode, s.set.lock.TTL(), strings.Join(texts, " "))
	}
	r := request("leave")
	if !leaving {
		r = request("sync").Granting(func(answer any) bool {
			list, _ := answer.([]any)
			return len(list) > 4 // the answer has partitions
		})
	}
	answer, err := s.set.lock.Commit(ctx, r)
	delay := lock.DelayOf(err)
	if delay != nil { // take no partitions during LockDelay, but learn which ones are lost
		r = request("give")
		answer, err = s.set.lock.Commit(ctx, r)
	}
	if err != nil {
		return sh, err
	}
	list, _ := answer.([]any)
	if len(list) == 1 && list[0] == int64(0) {
		s.lease.EndAsLost()
		return sh, lockcore.ErrLeaseLost
	}
	if len(list) < 4 || len(list)%2 == 1 {
		return sh, r.OddReply(answer)
	}
	left, _ := list[2].(int64)
	surplus, _ := list[3].(int64)
	sh = share{tokens: map[int]uint64{}, all: list[0] == int64(2), surplus: int(surplus)}
	sh.version, err = strconv.ParseUint(wire.Text(list[1]), 10, 64)
	for i := 4; i < len(list); i += 2 {
		index, err1 := strconv.Atoi(wire.Text(list[i]))
		token, err2 := strconv.ParseUint(wire.Text(list[i+1]), 10, 64)
		err = errors.Join(err, err1, err2)
		sh.tokens[index] = token
	}
	if err != nil {
		return sh, r.OddReply(answer)
	}
	switch sh.next = time.Duration(left)*time.Millisecond + time.Millisecond; {
	case delay != nil:
		sh.next = delay.Left
	case left < 0:
		sh.next = s.set.lock.TTL()
	}
	return sh, nil
}

// returned returns the owned partitions whose work has returned.
func (s *session) returned() (all []*work) {
	for _, w := range s.owned {
		if w.hasReturned() {
			all = append(all, w)
		}
	}
	return all
}

// idle reports whether all work of the session has returned.
func (s *session) idle() bool { return len(s.returned()) == len(s.owned) }

// dropLost stops the work of partitions that the server has given to others or lost, and returns their number.
func (s *session) dropLost(sh share) (lost int) {
	for index, w := range s.owned {
		if token, ok := sh.tokens[index]; token != w.token && (ok || sh.all) {
			w.stop(lockcore.ErrLeaseLost)
			delete(s.owned, index)
			lost++
		}
	}
	return lost
}

// stopSurplus stops the work of the newest partitions until surplus partitions are stopping. It returns how many it
// has stopped.
func (s *session) stopSurplus(surplus int) (stopped int) {
	var working []*work
	for _, w := range s.owned {
		if w.stopped.Load() == nil {
			working = append(working, w)
		}
	}
	surplus -= len(s.owned) - len(working)
	slices.SortFunc(working, func(a, b *work) int { return cmp.Compare(b.token, a.token) })
	for ; stopped < surplus && stopped < len(working); stopped++ {
		working[stopped].stop(ErrMoved)
	}
	return stopped
}
