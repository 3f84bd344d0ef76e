package partition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, partition.ScriptFiles, partition.UseScripts))
}

// Short names for all tests.
var (
	must   = testenv.Must
	mustIs = testenv.MustIs
)

const (
	setName       = "shards"
	leaseDuration = 1500 * time.Millisecond // short because of the real server
)

func key(part string) string { return "noonlock:{election/" + setName + "}:" + part }

// A board is what the replicas of a set of partitions do in a test: at most one of them works on a partition at a
// time, and its tokens grow.
type board struct {
	e     *testenv.Env
	n     int
	lease time.Duration

	loose bool // the server loses data, so two may work on a partition

	mu     sync.Mutex
	at     map[int]map[string]uint64 // who works on a partition, with which token
	token  map[int]uint64
	moves  int
	causes []error               // of the contexts of work that has returned
	hangs  map[int]chan struct{} // work of the partition returns when the channel is closed

	reader func() *partition.Set
}

func newBoard(e *testenv.Env, n int) *board {
	lease := leaseDuration
	if e.Bubble == nil {
		lease = 10 * time.Second // a slow machine must not lose a lease
	}
	return &board{
		e: e, n: n, lease: lease, at: map[int]map[string]uint64{}, token: map[int]uint64{}, hangs: map[int]chan struct{}{},
		reader: sync.OnceValue(func() *partition.Set {
			return testenv.Call(partition.NewSet(e.Client("reader"), setName)).Must(e)
		}),
	}
}

func (b *board) work(who string) func(ctx context.Context, index int) {
	return func(ctx context.Context, index int) {
		b.mu.Lock()
		of := lockcore.FromContext(ctx)
		token := of.Token()
		if of.Check() != nil || lockcore.FromContext(of.Context()).Token() != token {
			b.e.Errorf("%s: partition %d without its lease", who, index)
		}
		if others := b.at[index]; len(others) > 0 && !b.loose || token <= b.token[index] {
			b.e.Errorf("%s leads %d with token %d beside %v, after the token %d", who, index, token, others, b.token[index])
		}
		if b.at[index] == nil {
			b.at[index] = map[string]uint64{}
		}
		b.at[index][who], b.token[index] = token, token
		b.moves++
		hangs := b.hangs[index]
		b.mu.Unlock()
		<-ctx.Done()
		if hangs != nil {
			<-hangs
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.at[index], who)
		b.causes = append(b.causes, context.Cause(ctx))
	}
}

// A sharer is a replica of a set.
type sharer struct {
	*partition.Runner
	who        string
	wait, stop func() error
}

func (b *board) sharer(who string) *sharer {
	b.e.Helper()
	return b.on(b.e.Client(who), who)
}

func (b *board) on(c *lockcore.Client, who string) *sharer {
	b.e.Helper()
	ps, err := partition.NewRunner(c, setName, b.n, b.work(who), partition.Config{LeaseDuration: b.lease})
	must(b.e, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ps.Run(ctx) }()
	wait := sync.OnceValue(func() error { return <-done })
	stop := func() error {
		cancel()
		return wait()
	}
	b.e.Cleanup(func() { _ = stop() })
	return &sharer{ps, who, wait, stop}
}

// counts returns how many partitions each replica works on.
func (b *board) counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for _, at := range b.at {
		for who := range at {
			counts[who]++
		}
	}
	return counts
}

// shares returns counts as text.
func (b *board) shares() string {
	counts := b.counts()
	var all []string
	for _, who := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprint(who, ":", counts[who]))
	}
	return strings.Join(all, " ")
}

func (b *board) loses(data bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loose = data
}

// settles waits until the replicas work on so many partitions each, in one of these ways, and returns how many moves
// there were.
func (b *board) settles(want ...string) int {
	b.e.Helper()
	b.e.Until(fmt.Sprint("they settle at ", want), func() bool { return slices.Contains(want, b.shares()) })
	b.mu.Lock()
	defer b.mu.Unlock()
	moves := b.moves
	b.moves = 0
	return moves
}

// Replicas that come and go share the partitions, and a restart moves no more than it must.
func TestPartitionsAreShared(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		b := newBoard(e, 10)
		a := b.sharer("a")
		b.settles("a:10")
		b.sharer("b")
		b.settles("a:5 b:5")
		b.mu.Lock()
		for _, cause := range b.causes {
			mustIs(e, cause, partition.ErrMoved)
		}
		b.mu.Unlock()
		b.sharer("c")
		b.settles("a:3 b:4 c:3")
		must(e, a.stop())
		testenv.Equal(e, "moves after a replica has left", b.settles("b:5 c:5"), 3)
		b.sharer("d")
		testenv.Equal(e, "moves after a replica has joined", b.settles("b:3 c:4 d:3"), 3)
	})
}

// A replica dies, is frozen, or is cut off, while others live: its work ends before others lead its partitions,
// and they do within the lease and half a second.
func TestFault133_AReplicaOfPartitionsIsGone(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{true, false} {
		t.Run(fmt.Sprint("frozen ", frozen), func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				opt, f := e.Link()
				clock := testenv.NewClock()
				c := e.ClientOn(clock.Now, opt, lockcore.Config{Identity: "a"})
				b := newBoard(e, 9)
				a := b.on(c, "a")
				b.settles("a:9")
				b.sharer("b")
				b.sharer("c")
				b.settles("a:3 b:3 c:3")
				f.Partition()
				if frozen {
					clock.Advance(leaseDuration)
				}
				began := time.Now()
				b.settles("b:5 c:4", "b:4 c:5")
				if took := time.Since(began); took > leaseDuration+500*time.Millisecond {
					e.Errorf("others lead after %s", took)
				}
				f.Cut()
				f.Heal()
				b.settles("a:3 b:3 c:3")
				b.e.Until("it is ready", func() bool { return a.Ready() == nil })
				must(e, a.stop())
			})
		})
	}
}

// Work that hangs delays its own partition only: when its replica stops, when another one joins, and after
// its lease was lost.
func TestFault133_WorkOfAPartitionHangs(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		c, f := e.Linked("a")
		b := newBoard(e, 6)
		hangs := make(chan struct{})
		b.hangs[3] = hangs
		a := b.on(c, "a")
		release := sync.OnceFunc(func() { close(hangs) })
		e.Cleanup(release)
		b.settles("a:6")
		b.sharer("b")
		stopped := make(chan error, 1)
		b.settles("a:3 b:3", "a:4 b:2") // the one that hangs may be to move
		go func() { stopped <- a.stop() }()
		b.settles("a:1 b:5")
		e.Pass(5 * leaseDuration) // it is renewed
		b.settles("a:1 b:5")
		b.loses(true) // it ignores its context, and only the token tells it from the next leader
		f.Partition()
		b.settles("a:1 b:6")
		e.Until("the check fails", func() bool { return a.Check(time.Second) != nil })
		mustIs(e, a.Check(time.Second), partition.ErrOverdue)
		f.Heal()
		release()
		must(e, <-stopped)
		must(e, a.Check(0))
	})
}

var errBroken = errors.New("broken on purpose")

// The work of a partition panics or exits: the others end, all are given back, and Run's caller gets it.
func TestPartitionWorkPanics(t *testing.T) {
	t.Parallel()
	for _, value := range []any{errBroken, nil} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				lead := func(ctx context.Context, index int) {
					if index == 1 && value == nil {
						<-time.After(time.Second)
						runtime.Goexit()
					} else if index == 1 {
						panic(value)
					}
					<-ctx.Done()
				}
				ps := testenv.Call(partition.NewRunner(e.Client("a"), setName, 3, lead, partition.Config{})).Must(e)
				over := make(chan any)
				go func() {
					defer func() { over <- recover() }()
					e.Errorf("Run returned %v", ps.Run(context.Background()))
				}()
				got := <-over
				if panics, ok := got.(*noonlock.PanicError); value != nil && (!ok || !errors.Is(panics, errBroken)) || value == nil && got != nil {
					e.Errorf("Run's caller got %v", got)
				}
				b := newBoard(e, 3)
				b.sharer("b")
				b.settles("b:3")
			})
		})
	}
}

// A user may not publish, so that no message arrives: renewals tell what is to be done.
func TestFault134_NoMessageAboutPartitions(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	b := newBoard(e, 4)
	silent := func(who string) *sharer {
		opt := e.As(who, append(testenv.Rights(t, lock.NeedsOf(partition.Set{}), false), "-publish")...)
		return b.on(e.ClientWith(opt, lockcore.Config{Identity: who}), who)
	}
	a := silent("a")
	b.settles("a:4")
	silent("b")
	b.settles("a:2 b:2")
	must(e, a.stop())
	b.settles("b:4")
}

// The keys are lost: the replicas notice it, and share the partitions again, with greater tokens. The server's
// clock decides these, so that they grow.
func TestFault134_ClassD_TheKeysOfPartitionsAreLost(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		b := newBoard(e, 6)
		b.loose = true
		b.sharer("a")
		b.sharer("b")
		b.settles("a:3 b:3")
		e.LoseData()
		e.Until("all have another leader", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.moves >= 6
		})
		b.settles("a:3 b:3")
	})
}

// differs compares the members that work on each partition, and their tokens, with the leaders at the server, without
// those that are gone.
func (b *board) differs(gone ...string) string {
	b.e.Helper()
	var all []string
	stored, err := b.reader().Partitions(b.e.Context())
	must(b.e, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range stored {
		want := map[string]uint64{}
		if p.Leader != "" && !slices.Contains(gone, p.Leader) {
			want[p.Leader] = p.Token
		}
		if !maps.Equal(b.at[p.Index], want) {
			all = append(all, fmt.Sprintf("%d: %v, at the server %+v", p.Index, b.at[p.Index], p))
		}
	}
	return strings.Join(all, "; ")
}

// snapshot returns a function that gives the server back what it has of the partitions now, as a failover does to a
// replica that has lagged since then.
func (b *board) snapshot() (restore func()) {
	b.e.Helper()
	ctx := b.e.Context()
	parts, err := b.e.Raw.ZRangeWithScores(ctx, key("parts"), 0, -1).Result()
	must(b.e, err)
	fence, err := b.e.Raw.Get(ctx, key("fence")).Result()
	must(b.e, err)
	return func() {
		b.e.Helper()
		_, err := b.e.Raw.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, key("parts"))
			p.ZAdd(ctx, key("parts"), parts...)
			p.PExpire(ctx, key("parts"), b.lease)
			p.Set(ctx, key("fence"), fence, time.Hour)
			return nil
		})
		must(b.e, err)
	}
}

// Members come and go, and requests, replies and messages are lost, late and repeated: a partition has one leader, and
// its tokens grow. Then the server fails over to a replica that lagged meanwhile. Within one renewal, what members lead
// is what the server has, and tokens grow, also when a partition comes back to its former leader. In the end,
// they have equal shares.
func TestFault134_140_ClassD_PartitionsAfterAFailover(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Size(20, 400)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			testenv.InBubble(t, func(e *testenv.Env) {
				random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
				b := newBoard(e, 1+random.IntN(14))
				var live []*sharer
				var gone []string
				var nets []*lockcoretest.Faults
				var rules []*lockcoretest.Rule
				joins := 0
				step := func() {
					if i := random.IntN(5); i < len(live) && len(live) > 1 {
						must(e, live[i].stop())
						gone = append(gone, live[i].who)
						live = slices.Delete(live, i, i+1)
					} else if len(live) < 5 {
						joins++
						c, f := e.Linked(fmt.Sprint("member ", joins))
						live, nets = append(live, b.on(c, fmt.Sprint("member ", joins))), append(nets, f)
					}
					e.Pass(time.Duration(1+random.IntN(5)) * time.Millisecond) // so the clock is ahead of the tokens
				}
				for range 20 {
					step()
					fault := lockcoretest.Fault{Match: testenv.IsScript, Skip: random.IntN(3), Count: 1}
					switch kinds := []string{lockcoretest.DropRequest, lockcoretest.SwallowReply, lockcoretest.DuplicateRequest}; random.IntN(3) {
					case 0:
						fault.Kind, fault.Delay = lockcoretest.DelayRequest, time.Duration(random.Int64N(int64(2*leaseDuration)))
					case 1:
						fault.Kind, fault.Match = lockcoretest.DropMessage, nil
					default:
						fault.Kind = kinds[random.IntN(len(kinds))]
					}
					rules = append(rules, testenv.Call(nets[random.IntN(len(nets))].Add(fault)).Must(e))
					e.Pass(time.Duration(random.Int64N(int64(leaseDuration))))
				}
				for _, rule := range rules {
					rule.Lift()
				}
				e.Pass(2 * leaseDuration)
				for range 4 {
					for range random.IntN(4) {
						step()
					}
					restore := b.snapshot()
					for range 1 + random.IntN(4) {
						step()
					}
					b.loses(true)
					restore()
					e.Pass(leaseDuration * 2 / 15 * 17 / 16)
					if differs := b.differs(gone...); differs != "" {
						t.Fatalf("after a renewal: %s", differs)
					}
					b.loses(false)
				}
				e.Until("all have an equal share", func() bool {
					least, most := b.n/len(live), (b.n+len(live)-1)/len(live)
					counts, sum := b.counts(), 0
					for _, n := range counts {
						sum += n
					}
					return sum == b.n && !slices.ContainsFunc(live, func(s *sharer) bool { return counts[s.who] < least || counts[s.who] > most })
				})
			})
		})
	}
}

// A member has left before a failover to a replica that had it lead: the others stop what they got from it, and get it
// again when its lease has ended. With LockDelay, two never lead a partition.
func TestFault140_ClassD_AMemberLeavesBeforeAFailover(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		b := newBoard(e, 12)
		delayed := func(who string) *sharer {
			return b.on(e.ClientWith(e.Direct(), lockcore.Config{Identity: who, LockDelay: leaseDuration}), who)
		}
		a := delayed("a")
		delayed("b")
		delayed("c")
		b.settles("a:4 b:4 c:4")
		restore := b.snapshot()
		must(e, a.stop())
		b.settles("b:6 c:6")
		restore()
		must(e, e.Bubble.Restart())
		e.Pass(leaseDuration / 2)
		b.settles("b:4 c:4")
		testenv.Equal(t, "differences during the delay", b.differs("a"), "")
		b.settles("b:6 c:6")
		e.Until("they lead what the server says", func() bool { return b.differs() == "" })
	})
}

// The work of a partition that was lost hangs, while its session continues. Check fails, although this member gets the
// partition again: that work waits.
func TestFault140_WorkOfALostPartitionHangs(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		b := newBoard(e, 2)
		hangs := make(chan struct{})
		b.hangs[1] = hangs
		a := b.sharer("a")
		b.settles("a:2")
		e.Pass(leaseDuration)
		for _, member := range e.Raw.ZRange(e.Context(), key("parts"), 0, -1).Val() {
			if member[0] == 'v' {
				must(e, e.Raw.ZRem(e.Context(), key("parts"), member).Err())
			}
		}
		must(e, e.Raw.ZAdd(e.Context(), key("parts"), redis.Z{Score: 0, Member: "1"}).Err())
		e.Pass(leaseDuration)
		mustIs(e, a.Check(leaseDuration/2), partition.ErrOverdue, lockcore.ErrLeaseLost)
		b.settles("a:2")
		close(hangs)
		e.Pass(time.Second)
		must(e, a.Check(0))
		if differs := b.differs(); differs != "" {
			t.Error(differs)
		}
	})
}

// Another number of partitions is refused while replicas share them, and the error names both.
func TestFault134_AnotherNumberOfPartitions(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		b, other := newBoard(e, 6), newBoard(e, 7)
		a := b.sharer("a")
		b.settles("a:6")
		err := other.sharer("b").wait()
		mustIs(e, err, noonlock.ErrConfig)
		if text := fmt.Sprint(err); !strings.Contains(text, `n is "7"`) && !strings.Contains(text, "7") || !strings.Contains(text, "6, which") {
			e.Errorf("the error is %s", text)
		}
		must(e, a.stop())
		other.sharer("b")
		other.settles("b:7")
	})
}

// What NewRunner, NewSet and Sets refuse, before anything is sent.
func TestRefusals(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		c, lead := e.Client("a"), func(context.Context, int) {}
		servers := []redis.UniversalClient{e.Raw, e.Raw, e.Raw}
		several := testenv.Call(lockcore.NewQuorum(servers, lockcore.QuorumConfig{})).Must(e)
		defer several.Close(e.Context())
		made := func(c *lockcore.Client, name string, n int, lead func(context.Context, int), cfg partition.Config) error {
			_, err := partition.NewRunner(c, name, n, lead, cfg)
			return err
		}
		_, noClient := partition.NewSet(nil, "x")
		_, ofSeveral := partition.NewSet(several, "x")
		_, noList := partition.Sets(e.Context(), nil, nil)
		_, listOfSeveral := partition.Sets(e.Context(), several, nil)
		for want, err := range map[string]error{
			"client is nil":          made(nil, "x", 1, lead, partition.Config{}),
			"the Client of a set of": made(several, "x", 1, lead, partition.Config{}),
			"lead":                   made(c, "x", 1, nil, partition.Config{}),
			"n is 0":                 made(c, "x", 0, lead, partition.Config{}),
			"from 1 to 4096":         made(c, "x", 4097, lead, partition.Config{}),
			"name":                   made(c, "", 1, lead, partition.Config{}),
			"Config.LeaseDuration":   made(c, "x", 1, lead, partition.Config{LeaseDuration: 1}),
			"Config.ShutdownTimeout": made(c, "x", 1, lead, partition.Config{ShutdownTimeout: -1}),
			"a *lockcore.Client":     noClient,
			"of NewQuorum":           ofSeveral,
			"must be a *lockcore":    noList,
			"NewQuorum":              listOfSeveral,
		} {
			mustIs(e, err, noonlock.ErrConfig)
			if !strings.Contains(fmt.Sprint(err), want) {
				e.Errorf("want an error about %s: %v", want, err)
			}
		}
	})
}

// While the server is out of memory, replicas keep what they lead.
func TestFault31_PartitionsWithoutMemory(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	b := newBoard(e, 4)
	b.lease = 4 * leaseDuration // without memory, nobody joins
	b.sharer("a")
	b.sharer("b")
	b.settles("a:2 b:2")
	must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", "1").Err())
	began := time.Now()
	e.Until("their leases would have ended", func() bool { return time.Since(began) > 2*b.lease })
	testenv.Equal(e, "moves", b.settles("a:2 b:2"), 0)
	must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", "0").Err())
}

// Users with exactly the documented rights share partitions. Without the right to one command, a replica is not
// ready when it starts, and its error names the right.
func TestRights(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	rights := testenv.Rights(t, lock.NeedsOf(partition.Set{}), false)
	as := func(who string, also ...string) *lockcore.Client {
		return e.ClientWith(e.As(who, slices.Concat(rights, also)...), lockcore.Config{Identity: who})
	}
	b := newBoard(e, 4)
	a := b.on(as("a"), "a")
	b.settles("a:4")
	must(e, doctor.CheckRights(e.Context(), as("doctor"), setName, doctor.UsePartitions))
	b.on(as("b"), "b")
	b.settles("a:2 b:2")
	must(e, a.stop())
	b.settles("b:4")
	for _, l := range e.Raw.ACLLog(e.Context(), 10).Val() {
		t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
	}
	commands := rights[slices.Index(rights, "+unsubscribe")+1:]
	for _, right := range slices.DeleteFunc(commands, func(right string) bool { return right == "+publish" }) {
		command := strings.TrimPrefix(right, "+")
		without := b.on(as("without-"+command, "-"+command), "c")
		e.Until("a replica without "+command+" is not ready", func() bool {
			err := without.Ready()
			return err != nil && strings.Contains(err.Error(), strings.ToUpper(command))
		})
		_ = without.stop()
	}
	b.settles("b:4")
}

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, false, func(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
		set := testenv.Call(partition.NewSet(c, setName)).Must(e)
		add("Set.Partitions", func(ctx context.Context) { _, _ = set.Partitions(ctx) })
		add("Sets", func(ctx context.Context) { _, _ = partition.Sets(ctx, c, nil) })
		r, err := partition.NewRunner(c, setName, 2, func(ctx context.Context, _ int) { <-ctx.Done() }, partition.Config{LeaseDuration: ttl, ShutdownTimeout: testenv.BoundShutdown})
		must(e, err)
		add("Runner.Run", func(ctx context.Context) { _ = r.Run(ctx) })
		add("Runner.Check", func(context.Context) { _ = r.Check(0) })
		add("Runner.Ready", func(context.Context) { _ = r.Ready() })
	})
}
