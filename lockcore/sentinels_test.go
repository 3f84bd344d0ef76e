package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A council is three Sentinels and two servers in a bubble: the primary, and a replica that is promoted at epoch 2.
type council struct {
	*env
	sentinels [3]*fakeSentinel
	servers   map[string]*lockcoretest.Redis // by address
	c         *lockcore.Client

	mu    sync.Mutex // guards what Sentinels say and the counts
	dials int
	asked int
}

// set changes what Sentinels say.
func (c *council) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// counts returns the numbers of dials and questions.
func (c *council) counts() (dials, asked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials, c.asked
}

type fakeSentinel struct {
	*lockcoretest.Redis
	epoch  int
	names  string // the primary; empty: it knows none of the name
	takes  time.Duration
	refuse string // the answer to HELLO
	lacks  string // the answer to SENTINEL MASTER; empty: it has that
}

const (
	before, after = "10.0.0.1:6379", "10.0.0.2:6379"
	unlike        = "10.0.0.3:6379" // nobody is there
)

// says sets what Sentinels say.
func (c *council) says(epoch int, primary string, which ...int) {
	c.set(func() {
		for _, i := range which {
			c.sentinels[i].epoch, c.sentinels[i].names = epoch, primary
		}
	})
}

func inCouncil(t *testing.T, test func(c *council)) {
	t.Helper()
	inBubble(t, func(e *env) {
		c := &council{env: e, servers: map[string]*lockcoretest.Redis{before: e.Bubble, after: lockcoretest.NewRedis(e.T)}}
		opts := &redis.UniversalOptions{MasterName: "noon"}
		for i := range c.sentinels {
			s := &fakeSentinel{Redis: lockcoretest.NewRedis(e.T)}
			c.sentinels[i] = s
			must(e, s.Server().Server().Register("SENTINEL", func(p *server.Peer, _ string, args []string) {
				var now fakeSentinel
				c.set(func() {
					if now = *s; strings.EqualFold(args[0], "master") {
						c.asked++
					}
				})
				now.answer(p, args)
			}))
			s.Server().Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
				refuse := ""
				c.set(func() { refuse = s.refuse })
				if refuse == "" || cmd != "HELLO" {
					return false
				}
				p.WriteError(refuse)
				return true
			})
			addr := fmt.Sprint("10.0.1.", i, ":26379")
			c.servers[addr] = s.Redis
			opts.Addrs = append(opts.Addrs, addr)
		}
		opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c.set(func() { c.dials++ })
			if r := c.servers[addr]; r != nil {
				return r.Options().Dialer(ctx, network, addr)
			}
			return nil, errors.New("nobody is there")
		}
		c.says(1, before, 0, 1, 2)
		var err error
		c.c, err = lockcore.NewFromOptions(opts, lockcore.Config{Identity: "a"})
		must(e, err)
		defer func() { must(e, c.c.Close(context.Background())) }() // a bubble does not end before all goroutines
		test(c)
	})
}

func (s *fakeSentinel) answer(p *server.Peer, args []string) {
	time.Sleep(s.takes)
	host, port, _ := strings.Cut(s.names, ":")
	switch {
	case s.lacks != "" && strings.EqualFold(args[0], "master"):
		p.WriteError(s.lacks)
	case s.names == "" && strings.EqualFold(args[0], "master"):
		p.WriteError("ERR No such master with that name")
	case s.names == "":
		p.WriteNull()
	case strings.EqualFold(args[0], "master"):
		p.WriteStrings([]string{"name", args[1], "ip", host, "port", port, "config-epoch", strconv.Itoa(s.epoch)})
	default:
		p.WriteStrings([]string{host, port})
	}
}

// replica makes a server answer like one.
func replica(r *lockcoretest.Redis) {
	r.Server().Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
		if cmd != "HELLO" {
			return false
		}
		p.WriteStrings([]string{"role", "replica"})
		return true
	})
}

// at returns the address of the server that grants the lock, or the error.
func (c *council) at(name string) string {
	c.Helper()
	lease, err := c.mutex(c.c, name, ttl(10*time.Second)).TryLock(c.Context())
	if err != nil {
		return err.Error()
	}
	has := func(addr string) bool {
		return c.servers[addr].Client().Exists(c.Context(), c.key(name, "lock")).Val() == 1
	}
	atBefore, atAfter := has(before), has(after) // the former primary may have granted it, too
	c.unlock(lease)
	switch {
	case atBefore && !has(before):
		return before
	case atAfter && !has(after):
		return after
	}
	return "nowhere"
}

// The three Sentinels are in every state that one of them may be in when a replica is promoted. The former primary
// works. A Client that is connected to it, and one that starts then, use the right server.
func TestFault18_Sentinels(t *testing.T) {
	inEveryState(t, func(*council) {}, map[string]councilState{
		"all say it":    {func(c *council) { c.says(2, after, 0, 1, 2) }, after, after},
		"one is stuck":  {func(c *council) { c.sentinels[0].Hang(); c.says(2, after, 1, 2) }, after, after},
		"two are stuck": {func(c *council) { c.sentinels[0].Hang(); c.sentinels[1].Hang(); c.says(2, after, 2) }, after, after},
		"two are away":  {func(c *council) { c.sentinels[0].Stop(); c.sentinels[1].Stop(); c.says(2, after, 2) }, after, after},
		"one is stale":  {func(c *council) { c.says(2, after, 1, 2) }, after, after},
		"two are stale": {func(c *council) { c.says(2, after, 2) }, after, after},
		"one is slow, one stale": {func(c *council) {
			c.sentinels[0].Stop()
			c.says(2, after, 2)
			c.set(func() { c.sentinels[2].takes = 200 * time.Millisecond })
		}, after, after},
		"one refuses":              {func(c *council) { c.set(func() { c.sentinels[0].refuse = "NOAUTH who?" }); c.says(2, after, 1, 2) }, after, after},
		"one has another name":     {func(c *council) { c.says(0, "", 0); c.says(2, after, 1, 2) }, after, after},
		"the newest is a replica":  {func(c *council) { c.says(2, after, 2); replica(c.servers[after]) }, before, before},
		"the newest is dead":       {func(c *council) { c.says(2, unlike, 2) }, before, before},
		"set up again":             {func(c *council) { c.says(3, before, 0, 1, 2); c.at("x"); c.says(1, after, 0, 1, 2) }, after, after},
		"one is set up again":      {func(c *council) { c.says(3, before, 0, 1, 2); c.at("x"); c.says(1, after, 0) }, before, before},
		"all have another name":    {func(c *council) { c.says(0, "", 0, 1, 2) }, before, permanent + "the name in MasterName"},
		"all refuse":               {func(c *council) { c.refuse("NOAUTH who?") }, before, permanent + "NOAUTH who?"},
		"some refuse, one is away": {func(c *council) { c.refuse("NOAUTH who?"); c.sentinels[1].Stop() }, before, "NOAUTH who?"},
		"all are away":             {func(c *council) { c.each(func(s *fakeSentinel) { s.Stop() }) }, before, "no Sentinel names a primary: 10.0.1.0:26379: "},
		"all are stuck":            {func(c *council) { c.each(func(s *fakeSentinel) { s.Hang() }) }, before, "10.0.1.2:26379: lockcore: no answer within 1s"},
	})
}

// Sentinels lack a command, or a right, and do not tell the epoch of their primary. A majority of the answers counts.
func TestFault139_SentinelsWithoutEpochs(t *testing.T) {
	for _, lacks := range []string{"ERR Unknown sentinel subcommand 'master'", "NOPERM this user has no permissions to run the 'sentinel|master' command"} {
		lack := func(which ...int) func(*council) {
			return func(c *council) {
				c.set(func() {
					for _, i := range which {
						c.sentinels[i].lacks = lacks
					}
				})
			}
		}
		t.Run(lacks, func(t *testing.T) {
			inEveryState(t, lack(0, 1, 2), map[string]councilState{
				"all say it":              {func(c *council) { c.says(0, after, 0, 1, 2) }, after, after},
				"one is stale":            {func(c *council) { c.says(0, after, 1, 2) }, after, after},
				"two are stale":           {func(c *council) { c.says(0, after, 2) }, before, before},
				"one is stuck":            {func(c *council) { c.sentinels[0].Hang(); c.says(0, after, 1, 2) }, after, after},
				"one is stuck, one stale": {func(c *council) { c.sentinels[0].Hang(); c.says(0, after, 2) }, before, "different primaries"},
				"two are away":            {func(c *council) { c.sentinels[0].Stop(); c.sentinels[1].Stop(); c.says(0, after, 2) }, after, after},
				"epochs were seen before": {func(c *council) {
					c.set(func() { c.sentinels[2].lacks = "" })
					c.says(2, after, 0, 1, 2)
					time.Sleep(1100 * time.Millisecond)
					c.at("x")
					lack(2)(c)
					c.says(0, before, 0)
					c.sentinels[1].Stop()
					c.sentinels[2].Stop()
				}, after, after},
			})
			inEveryState(t, lack(1, 2), map[string]councilState{
				"the stale one tells its epoch": {func(c *council) { c.says(9, before, 0); c.says(0, after, 1, 2) }, after, after},
				"one that lacks it is stale":    {func(c *council) { c.says(9, after, 0); c.says(0, after, 1) }, after, after},
			})
		})
	}
}

// A councilState is a state that Sentinels get into.
type councilState struct {
	change         func(c *council)
	running, fresh string // where locks are; what the error contains if that is no server
}

// permanent begins what an error contains that is not temporary.
const permanent = "permanent: "

// inEveryState prepares a council, and changes its state before and after its Client is connected.
func inEveryState(t *testing.T, prepare func(c *council), states map[string]councilState) {
	t.Helper()
	for name, row := range states {
		t.Run(name, func(t *testing.T) {
			t.Run("running", func(t *testing.T) {
				inCouncil(t, func(c *council) {
					prepare(c)
					c.at("first")
					synctest.Wait() // the first look is over
					row.change(c)
					time.Sleep(1100 * time.Millisecond)
					if at := c.at("second"); !strings.Contains(at, row.running) {
						c.Errorf("the lock is at %s, want %s", at, row.running)
					}
				})
			})
			t.Run("fresh", func(t *testing.T) {
				inCouncil(t, func(c *council) {
					prepare(c)
					row.change(c)
					time.Sleep(1100 * time.Millisecond)
					want, forever := strings.CutPrefix(row.fresh, permanent)
					if at := c.at("second"); !strings.Contains(at, want) {
						c.Errorf("the lock is at %s, want %s", at, want)
					}
					_, err := c.c.Inspect(c.Context(), "second")
					if is := err != nil && !lockcore.IsTemporary(err); is != forever {
						c.Errorf("permanent is %v: %v", is, err)
					}
				})
			})
		})
	}
}

func (c *council) each(f func(s *fakeSentinel)) {
	for _, s := range c.sentinels {
		f(s)
	}
}

func (c *council) refuse(why string) {
	c.each(func(s *fakeSentinel) { c.set(func() { s.refuse = why }) })
}

// The Sentinels that know the newest primary are stuck, and one that was cut off names the former one. The Client does
// not go back, and returns to its primary as soon as a Sentinel names it again.
func TestFault18_StaleSentinelAlone(t *testing.T) {
	inCouncil(t, func(c *council) {
		c.says(2, after, 1, 2)
		equal(c, "where the lock is at first", c.at("first"), after)
		c.sentinels[1].Hang()
		c.sentinels[2].Hang()
		equal(c, "where the lock is while it is connected", c.at("second"), after)
		c.servers[after].Faults().Cut()
		if at := c.at("third"); !strings.Contains(at, "only epoch 1, with the primary "+before+"; epoch 2 was seen before") {
			c.Errorf("the lock is at %s", at)
		}
		c.sentinels[2].Unhang()
		equal(c, "where the lock is", c.at("fourth"), after)
	})
}

// A Sentinel is stuck when all connections to Redis end. The requests that come then are over before the Sentinel has had
// its time to answer, and none of them asks for a lease. The other Sentinels suffice all the same.
func TestFault18_StuckSentinelAndShortRequests(t *testing.T) {
	inCouncil(t, func(c *council) {
		ask := func() error {
			ctx, cancel := context.WithTimeout(c.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := c.c.Inspect(ctx, "first")
			return err
		}
		must(c, ask())
		c.sentinels[0].Hang()
		c.servers[before].Faults().Cut()
		begun := time.Now()
		for err := ask(); err != nil; err = ask() {
			if time.Since(begun) > 2*time.Second {
				c.Fatal(err)
			}
			time.Sleep(time.Millisecond) // it may fail at once
		}
	})
}

// Each Sentinel gets one connection, and one question a second while a lease is held. A Client that waits asks once
// per TTL, and an idle one asks none.
func TestSentinelsAreAskedOnOneConnection(t *testing.T) {
	for name, row := range map[string]struct {
		use         func(c *council, m locker)
		least, most int // questions to each Sentinel in a minute
	}{
		"idle":            {func(c *council, m locker) { c.unlock(c.try(m)) }, 0, 0},
		"a lease is held": {func(c *council, m locker) { c.try(m) }, 59, 61},
		"a lock is waited for": {func(c *council, m locker) {
			other := c.clientOf(redis.NewClient(c.Bubble.Options()), lockcore.Config{Identity: "b"})
			c.try(c.mutex(other, m.Name(), ttl(20*time.Second)))
			c.queued(m)
		}, 2, 4},
	} {
		t.Run(name, func(t *testing.T) {
			inCouncil(t, func(c *council) {
				row.use(c, c.mutex(c.c, "orders", ttl(20*time.Second)))
				time.Sleep(30 * time.Second) // everything is connected
				dials, asked := c.counts()
				time.Sleep(time.Minute)
				moreDials, moreAsked := c.counts()
				if n := moreAsked - asked; moreDials != dials || n < 3*row.least || n > 3*row.most {
					c.Errorf("%d dials and %d questions in a minute", moreDials-dials, n)
				}
			})
		})
	}
}

// replicates copies the lock and its token counter to the next primary.
func (c *council) replicates(name string) {
	c.Helper()
	from, to := c.servers[before].Client(), c.servers[after].Client()
	for _, part := range []string{"lock", "fence"} {
		value := call(from.Get(c.Context(), c.key(name, part)).Result()).Must(c)
		must(c, to.Set(c.Context(), c.key(name, part), value, from.PTTL(c.Context(), c.key(name, part)).Val()).Err())
	}
}

// The Sentinels name another primary, while the old one accepts writes on all connections. A second later, the
// Client uses the new one only. It renews its leases there at once: those that the new primary has live on, and the
// others end. Its waiters queue there.
func TestFault17_18_ClassD_PrimaryThatStillWorksIsLeft(t *testing.T) {
	inCouncil(t, func(c *council) {
		kept := c.try(c.mutex(c.c, "kept", ttl(20*time.Second)))
		c.replicates("kept")
		lost := c.try(c.mutex(c.c, "lost", ttl(20*time.Second)))
		other := c.clientOf(redis.NewClient(c.servers[after].Options()), lockcore.Config{Identity: "b"})
		c.try(c.mutex(c.clientOf(redis.NewClient(c.servers[before].Options()), lockcore.Config{Identity: "b"}), "orders", lockcore.LeaseConfig{TTL: 30 * time.Second, NoRenewal: true}))
		holder := c.try(c.mutex(other, "orders", ttl(30*time.Second)))
		waiter := c.queued(c.mutex(c.c, "orders", ttl(20*time.Second)))
		time.Sleep(2500 * time.Millisecond)
		// Two leases of a lock are valid until the Client leaves the old primary, and the new token is greater.
		tokensGrow(c, lost, c.try(c.mutex(other, "lost", ttl(20*time.Second))))
		must(c, lost.Context().Err())
		var requests atomic.Int64
		c.servers[before].Server().Server().SetPreHook(func(*server.Peer, string, ...string) bool {
			requests.Add(1)
			return false
		})
		c.says(2, after, 0, 1, 2)
		time.Sleep(time.Second + 100*time.Millisecond)
		requests.Store(0)
		mustIs(c, context.Cause(lost.Context()), lockcore.ErrLeaseLost)
		must(c, kept.Context().Err())
		if left := c.servers[after].Client().PTTL(c.Context(), c.key("kept", "lock")).Val(); left < 18500*time.Millisecond {
			c.Errorf("the new primary keeps the lease for %v", left)
		}
		c.unlock(holder)
		time.Sleep(100 * time.Millisecond)
		if !waiter.over() {
			c.Error("the waiter is not notified at the new primary")
		}
		c.unlock(waiter.granted())
		c.unlock(kept)
		time.Sleep(time.Minute)
		if requests := requests.Load(); requests > 0 {
			c.Errorf("the old primary got %d requests", requests)
		}
	})
}

// The old primary grants a lock that another client holds at the new one. Its answer is under way when the Sentinels
// name another primary, or they do so while the Client is idle and its connections stay. The grant does not count.
func TestFault18_GrantOfTheFormerPrimaryIsChecked(t *testing.T) {
	for name, inFlight := range map[string]bool{"in flight": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			inCouncil(t, func(c *council) {
				c.unlock(c.try(c.mutex(c.c, "warm", ttl(20*time.Second))))
				time.Sleep(30 * time.Second)
				holder := c.try(c.mutex(c.clientOf(redis.NewClient(c.servers[after].Options()), lockcore.Config{Identity: "b"}), "orders", ttl(20*time.Second)))
				if inFlight {
					c.servers[before].Hang()
				} else {
					c.says(2, after, 0, 1, 2)
				}
				attempt := c.going(c.mutex(c.c, "orders", ttl(20*time.Second)).TryLock)
				if inFlight {
					time.Sleep(100 * time.Millisecond)
					c.says(2, after, 0, 1, 2)
					time.Sleep(2 * time.Second)
					c.servers[before].Unhang()
				}
				call(attempt.wait()).MustFail(c, lockcore.ErrNotAcquired)
				must(c, holder.Context().Err())
			})
		})
	}
}
