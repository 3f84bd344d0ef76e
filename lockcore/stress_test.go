package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

type stress struct {
	*env
	history                  *testenv.History
	acquired, given, unknown atomic.Int64
	// The counts of readers and writers.
	written, read, downgraded atomic.Int64
}

// ttl is longer on a real server, because the machine may be busy.
func (s *stress) ttl() time.Duration {
	if s.Bubble == nil {
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// run lasts for that time, and until enough has happened.
func (s *stress) run(seed uint64, lasts time.Duration, enough func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	names := []string{"one", "two"}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		until := time.NewTimer(lasts)
		defer until.Stop()
		for <-until.C; !enough() && ctx.Err() == nil; <-until.C {
			until.Reset(lasts / 10)
		}
	})
	var networks []*lockcoretest.Faults
	var clients []*lockcore.Client
	for i := range 5 {
		c, f := s.Linked(fmt.Sprint("client ", i))
		clients, networks = append(clients, c), append(networks, f)
		for j := range 3 {
			r := rand.New(rand.NewPCG(seed, uint64(10*i+j))) //nolint:gosec // a test's choices
			wg.Go(func() { s.work(ctx, c, fmt.Sprintf("%d.%d", i, j), names, r) })
		}
	}
	var rules map[string][]*lockcoretest.Rule
	wg.Go(func() {
		rules = s.havoc(ctx, networks, rand.New(rand.NewPCG(seed, 1000))) //nolint:gosec // a test's choices
	})
	wg.Wait()

	fired := map[string]int{}
	total := 0
	for kind, all := range rules {
		for _, rule := range all {
			fired[kind] += rule.Fired()
			total += rule.Fired()
		}
	}
	s.Logf("%d acquired, %d abandoned, %d unknown; %d faults: %v", s.acquired.Load(), s.given.Load(), s.unknown.Load(), total, fired)
	if total < 20 || s.acquired.Load() < 5 {
		s.Error("too little happened")
	}
	wrong, stray := s.history.Check()
	if s.Bubble != nil {
		// On a real server, a pause of this process between a look at the lease and its
		// record creates events that mean nothing.
		wrong = append(wrong, stray...)
	}
	for _, problem := range wrong {
		s.Error(problem)
	}
	for i, c := range clients {
		for _, name := range names {
			s.calm(c, name)
		}
		if err := c.Close(s.Context()); err != nil {
			s.Errorf("client %d: Close: %v", i, err)
		}
	}
	if s.kind == "semaphore" {
		s.Pass(s.ttl()) // calm waits for any slot only, and a lease that was forgotten has its slot until it ends
	}
	for _, name := range names {
		if v := s.stored(name); v != "" || s.queueLength(name) != 0 {
			s.Errorf("%s: lock %q, %d in the queue", name, v, s.queueLength(name))
		}
	}
}

// calm acquires and releases a name after the faults. On a busy machine an answer may still be too late for so short
// a TTL.
func (s *stress) calm(c *lockcore.Client, name string) {
	s.Helper()
	s.Until("it can be taken and given back", func() bool {
		m := s.mutex(c, name, ttl(s.ttl()))
		lease, err := m.Lock(s.Context())
		if err == nil {
			err = lease.Unlock(s.Context())
		}
		if err != nil && (s.Bubble != nil || !lockcore.IsTemporary(err) && !errors.Is(err, lockcore.ErrLeaseExpired)) {
			s.Error(err)
			return true
		}
		return err == nil
	})
}

// work acquires and releases names, and records what it believes.
func (s *stress) work(ctx context.Context, c *lockcore.Client, proc string, names []string, r *rand.Rand) {
	for ctx.Err() == nil {
		name := names[r.IntN(len(names))]
		renewed := r.IntN(4) > 0
		cfg := lockcore.LeaseConfig{TTL: s.ttl(), NoRenewal: !renewed}
		event := testenv.Event{Proc: proc, Name: name}
		m := s.side(c, cfg, &event, r)
		take := m.Lock
		if r.IntN(3) == 0 {
			take = m.TryLock
		}
		asking, stop := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
		lease, err := take(asking)
		stop()
		if err != nil {
			s.given.Add(1)
			if errors.Is(err, lockcore.ErrUnknown) {
				s.unknown.Add(1)
			}
			s.nap(r, 20*time.Millisecond)
			continue
		}
		s.acquired.Add(1)
		event.Token = lease.Token()
		if lease.Slot() >= 0 {
			event.Name += fmt.Sprint("/", lease.Slot())
		}
		record := func(op testenv.Op) {
			event.Op = op
			event.ValidUntil = s.Clock() // before Remaining, not to believe too long
			if left := lease.Remaining(); left > 0 {
				event.ValidUntil += left
			}
			s.history.Record(event)
		}
		record(testenv.Acquire)
		for range r.IntN(5) * r.IntN(5) {
			// Before the end that was recorded last. Otherwise a renewal would be recorded
			// too late. Remaining may already use a later end.
			s.nap(r, min(60*time.Millisecond, max(0, event.ValidUntil-s.Clock())/2+1))
			if lease.Context().Err() != nil {
				break
			}
			record(testenv.Renew)
			if event.Owner != "" && !event.Shared && r.IntN(4) == 0 {
				s.downgrade(ctx, lease, event)
			}
		}
		if lease.Context().Err() == nil {
			record(testenv.Release)
		} else {
			record(testenv.Lose)
		}
		if renewed || r.IntN(3) > 0 { // else it is forgotten, and ends by itself
			giving, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(r.IntN(500))*time.Millisecond)
			_ = lease.Unlock(giving) // it may not be held any more, or unknown
			stop()
		}
	}
}

// side returns a lock: for readers and writers one of its sides, of one of a few owners.
func (s *stress) side(c *lockcore.Client, cfg lockcore.LeaseConfig, event *testenv.Event, r *rand.Rand) locker {
	s.Helper()
	if s.kind == "semaphore" {
		m := call(c.Semaphore(event.Name, 3, cfg)).Must(s)
		return slots{m, event.Name}
	}
	if s.kind != "write" {
		return s.mutex(c, event.Name, cfg)
	}
	event.Owner = fmt.Sprint("owner", r.IntN(6))
	rw, err := c.RWMutex(event.Name, event.Owner, cfg)
	if err != nil {
		s.Error(err)
		return nil
	}
	if r.IntN(3) > 0 {
		event.Shared = true
		s.read.Add(1)
		return reads{rw}
	}
	s.written.Add(1)
	return rw
}

// downgrade turns a writer into a reader. It counts from before the call, because it may be applied at any time from
// then on.
func (s *stress) downgrade(ctx context.Context, lease *lockcore.Lease, event testenv.Event) {
	s.Helper()
	event.Op = testenv.Downgrade
	s.history.Record(event)
	// Not beyond the known end, or a renewal would be recorded too late.
	asking, stop := context.WithTimeout(ctx, lease.Remaining()/2)
	defer stop()
	if err := lockcore.Downgrade(asking, lease); err == nil {
		s.downgraded.Add(1)
	}
}

// nap waits for a random time, so that others run.
func (s *stress) nap(r *rand.Rand, most time.Duration) {
	timer := time.NewTimer(time.Duration(r.Int64N(int64(most))))
	defer timer.Stop()
	<-timer.C
}

// havoc breaks one network after the other until ctx ends, and then repairs all of them.
func (s *stress) havoc(ctx context.Context, networks []*lockcoretest.Faults, r *rand.Rand) map[string][]*lockcoretest.Rule {
	rules := map[string][]*lockcoretest.Rule{}
	kinds := []string{
		lockcoretest.DropRequest, lockcoretest.DelayRequest, lockcoretest.DuplicateRequest, lockcoretest.ResetBefore,
		lockcoretest.ResetAfter, lockcoretest.SwallowReply, lockcoretest.RepeatReply, lockcoretest.DelayReply, lockcoretest.DropMessage, lockcoretest.DelayMessage,
	}
	scripts := []func([]string) bool{s.script("mutex_acquire"), s.script("mutex_renew"), s.script("mutex_leave")}
	if s.kind == "write" {
		scripts = append(scripts, s.script("owned_downgrade"))
	}
	for ctx.Err() == nil {
		s.nap(r, 100*time.Millisecond)
		f := networks[r.IntN(len(networks))]
		switch r.IntN(20) {
		case 0:
			rules[""] = append(rules[""], f.Partition()) // it has no kind
			s.nap(r, 2*s.ttl())
			f.Heal()
			continue
		case 1:
			f.Cut()
			continue
		case 2:
			f.CutSubscriptions()
			continue
		}
		fault := lockcoretest.Fault{Kind: kinds[r.IntN(len(kinds))], Count: 1 + r.IntN(2)}
		switch fault.Kind {
		case lockcoretest.DropMessage, lockcoretest.DelayMessage:
		default:
			fault.Match = scripts[r.IntN(len(scripts))]
		}
		switch fault.Kind {
		case lockcoretest.DelayRequest, lockcoretest.DelayReply, lockcoretest.DelayMessage:
			fault.Delay = time.Duration(1+r.Int64N(int64(2*s.ttl()/time.Millisecond))) * time.Millisecond
		default: // it takes no time
		}
		rule, err := f.Add(fault)
		if err != nil {
			s.Error(err)
			return rules
		}
		rules[fault.Kind] = append(rules[fault.Kind], rule)
	}
	for _, all := range rules {
		for _, rule := range all {
			rule.Lift()
		}
	}
	return rules
}

// Clients whose networks fail at random contend for two names. Requests and replies are lost, delayed, repeated or
// cut off. No two clients believe that they hold a name at the same time, tokens grow, and after the faults every
// request succeeds. Owners read and write in turn. No writer is ever together with another owner. Processes and
// goroutines share owners, leases nest, and some writers downgrade. A Semaphore has three slots.
func TestRandomFaults(t *testing.T) {
	for _, kind := range []string{"mutex", "write", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, func(e *env) {
				e.kind = kind
				lasts := time.Duration(testenv.Size(5, 10)) * time.Second
				if e.Bubble != nil {
					lasts *= 4
				}
				seed := rand.Uint64() //nolint:gosec // a test's choices
				s := &stress{env: e, history: testenv.NewHistory(e.Clock)}
				enough := func() bool {
					return s.acquired.Load() >= 5 && (kind != "write" || s.written.Load() >= 3 && s.read.Load() >= 3 && s.downgraded.Load() > 0)
				}
				s.run(seed, lasts, enough)
				if !enough() {
					e.Errorf("%d acquired, %d wrote, %d read, %d downgraded: too little happened", s.acquired.Load(), s.written.Load(), s.read.Load(), s.downgraded.Load())
				}
				if e.Failed() {
					e.Logf("seed %d", seed)
				}
			})
		})
	}
}
