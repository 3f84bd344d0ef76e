package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const (
	shares    = "noonlock:parts:0:shards"
	partsTTL  = 10 * time.Second
	liveScore = 10000
)

func key(part string) string { return "noonlock:{election/shards}:" + part }

func lua() testenv.Scripts { return testenv.Scripts{Files: ScriptFiles} }

// The header of the script declares its arguments, and it uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	lua().CheckHeaders(t)
}

// A seat is a replica in the model of a set of partitions: what it knows by the answers that have reached it.
type seat struct {
	me      string
	session string
	version string            // of its partitions, at the server
	lagged  bool              // the server has lost data, and this replica has not heard of it
	owned   map[string]string // its partitions and their tokens, with those to be reported as returned
	back    map[string]string // that have returned
	surplus int
	leaves  bool
	until   time.Time // its lease
}

// A partsModel executes the script as replicas do, with each fault, and checks every state.
type partsModel struct {
	*testenv.Env
	n      int
	random *rand.Rand
	sub    *redis.PubSub
	seats  []*seat
	told   map[string]bool // sessions that were told to call, or know by themselves that they should
	tokens map[string]float64
	newest map[string]float64 // tokens under which work began
	late   []func()           // requests that are still under way
	grants int
	begun  int
}

func (m *partsModel) keys(s *seat) []string {
	return []string{key("parts"), key("fence"), key("tomb:" + s.me)}
}

// send executes a request twice, as after a lost reply. The second one changes nothing. It returns its answer.
func (m *partsModel) send(s *seat, mode string) []any {
	m.Helper()
	ttl, texts := partsTTL.Milliseconds(), []string{}
	for _, p := range slices.Sorted(maps.Keys(s.back)) {
		texts = append(texts, p+":"+s.back[p])
	}
	keys := m.keys(s)
	if mode == "renew" {
		keys = keys[:1]
	}
	args := []any{s.me, mode, ttl, m.n, s.version, strings.Join(texts, " "), shares}
	var told []string
	once := func() any {
		old := m.state()
		answer, err := m.Raw.Eval(m.Context(), lua().Source(m, "parts_share"), keys, args...).Result()
		testenv.Must(m, err)
		if answer == int64(1) && mode == "renew" && args[4] == any(s.version) {
			s.lagged = false // it knows what the server has
		}
		told = m.listen()
		m.check(fmt.Sprint(args, " answered ", answer))
		m.oracle(fmt.Sprint(args, " answered ", answer), old, s, mode, answer, told)
		return answer
	}
	m.until(s, mode)
	first := once()
	before := m.dump()
	second := once()
	if told != nil {
		m.Fatalf("%v twice: told %v", args, told)
	}
	if after := m.dump(); after != before || mode != "sync" && mode != "leave" && mode != "quit" && fmt.Sprint(first) != fmt.Sprint(second) {
		m.Fatalf("%v twice: %v, then %v\n%s\n%s", args, first, second, before, after)
	}
	if m.random.IntN(4) == 0 && mode != "join" {
		m.late = append(m.late, func() { m.until(s, mode); once() })
	}
	if list, ok := second.([]any); ok {
		return list
	}
	return []any{second}
}

// until notes that a request extends the lease of a session, if there is one.
func (m *partsModel) until(s *seat, mode string) {
	if s.until.After(time.Now()) && mode != "quit" {
		s.until = time.Now().Add(partsTTL)
	}
}

func (m *partsModel) dump() string {
	all, err := m.Raw.ZRangeWithScores(m.Context(), key("parts"), 0, -1).Result()
	testenv.Must(m, err)
	return fmt.Sprint(all)
}

// listen notes who was told to call, and returns them.
func (m *partsModel) listen() (all []string) {
	for _, text := range m.Received(m.sub, shares) {
		all = append(all, strings.Fields(strings.TrimPrefix(text, shares))...)
	}
	for _, session := range all {
		m.told[session] = true
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A partsState is what the shares depend on.
type partsState struct {
	live, leaving map[string]int // sessions and how many partitions they own
	free          int
}

func (m *partsModel) state() partsState {
	s := partsState{live: map[string]int{}, leaving: map[string]int{}}
	for _, z := range m.Raw.ZRangeWithScores(m.Context(), key("parts"), 0, -1).Val() {
		switch name := z.Member.(string); {
		case name[0] == 'c':
			s.live[name[1:]] = int(z.Score) - liveScore
		case name[0] == 'd':
			s.leaving[name[1:]] = int(z.Score) - 2*liveScore
		case name[0] <= '9' && z.Score == 0:
			s.free++
		}
	}
	return s
}

// oracle holds an answer and the sessions that were told to call against the rules of the shares.
func (m *partsModel) oracle(where string, old partsState, s *seat, mode string, answer any, told []string) {
	m.Helper()
	now, caller := m.state(), s.session
	if list, ok := answer.([]any); ok && mode == "join" {
		caller = fmt.Sprint(list[1])
	}
	lacking, excess, leaving, least, most := 0, 0, 0, 0, 0
	if live := len(now.live); live > 0 {
		least, most = m.n/live, (m.n+live-1)/live
	}
	var low, equal, give []string
	for _, session := range slices.Sorted(maps.Keys(now.live)) {
		n := now.live[session]
		lacking, excess = lacking+max(0, least-n), excess+max(0, n-most)
		if n < least {
			low = append(low, session)
		} else if n == least && least < most {
			equal = append(equal, session)
		}
		if n >= most {
			give = append(give, session)
		}
	}
	for _, n := range now.leaving {
		leaving += n
	}
	give = give[:min(len(give), max(0, lacking-now.free-excess-leaving))]
	if list, ok := answer.([]any); ok && len(list) >= 4 {
		n, takes := now.live[s.session]
		want := now.leaving[s.session]
		if takes {
			want = max(0, n-most)
			if slices.Contains(give, s.session) {
				want++
			}
			if now.free > 0 && (n < least || n < most && now.free > lacking) {
				m.Fatalf("%s: it takes too few: %+v", where, now)
			}
			if n > old.live[s.session] && (n > most || n > least && now.free < lacking) {
				m.Fatalf("%s: it takes too many: %+v", where, now)
			}
		}
		if list[3] != int64(want) {
			m.Fatalf("%s: the surplus is %d: %+v", where, want, now)
		}
	}
	var want []string
	if now.free > 0 {
		want = append(want, low...)
	}
	want = append(want, equal[:max(0, min(len(equal), now.free-lacking+1))]...)
	if now.free <= lacking {
		want = want[:len(want)-max(0, min(len(equal), now.free-lacking+1))]
	}
	for session, n := range now.live {
		if n > most || slices.Contains(give, session) {
			want = append(want, session)
		}
	}
	want = slices.DeleteFunc(want, func(session string) bool { return session == caller && mode != "quit" })
	slices.Sort(want)
	want = slices.Compact(want)
	same := maps.EqualFunc(old.live, now.live, func(int, int) bool { return true }) && len(old.leaving) == len(now.leaving) && now.free <= old.free
	if told != nil && !slices.Equal(told, want) || told == nil && !same && len(want) > 0 {
		m.Fatalf("%s: told %v, want %v: %+v, before %+v", where, told, want, now, old)
	}
}

// check compares the set with what the replicas know.
func (m *partsModel) check(where string) {
	m.Helper()
	all, err := m.Raw.ZRangeWithScores(m.Context(), key("parts"), 0, -1).Result()
	testenv.Must(m, err)
	scores, counts := map[string]float64{}, map[float64]float64{}
	for _, z := range all {
		name := z.Member.(string)
		scores[name] = z.Score
		if _, err := strconv.Atoi(name); err == nil {
			counts[z.Score]++
		} else if name[0] == 't' {
			if p := name[1:]; m.tokens[p] < -z.Score {
				m.tokens[p] = -z.Score
				m.grants++
			} else if m.tokens[p] > -z.Score {
				m.Errorf("%s: the token of %s has gone back", where, p)
			}
		}
	}
	partitions := 0.0
	for owner, n := range counts {
		partitions += n
		c, d := scores[fmt.Sprintf("c%.0f", owner)], scores[fmt.Sprintf("d%.0f", owner)]
		if owner != 0 && c != liveScore+n && d != 2*liveScore+n {
			m.Fatalf("%s: %.0f has %v partitions: %v", where, owner, n, all)
		}
	}
	if partitions != float64(m.n) {
		m.Fatalf("%s: there are %v partitions", where, partitions)
	}
	for _, s := range m.seats {
		if s.lagged {
			continue
		}
		if _, lives := scores["m"+s.me]; lives != s.until.After(time.Now()) || lives != (scores["e"+s.session] > 0) {
			if s.session != "" && s.until.After(time.Now()) { // otherwise nobody has looked
				m.Fatalf("%s: the session %s has ended: %v", where, s.session, all)
			}
			continue
		}
		if !s.until.After(time.Now()) {
			continue
		}
		for p, token := range s.owned {
			if s.back[p] == "" && (fmt.Sprintf("%.0f", scores[p]) != s.session || fmt.Sprintf("%.0f", -scores["t"+p]) != token) {
				m.Fatalf("%s: %s works on %s with %s, which has another leader: %v", where, s.session, p, token, all)
			}
		}
	}
}

func (m *partsModel) join() *seat {
	m.Helper()
	m.begun++
	s := &seat{me: fmt.Sprintf("nl1:P%d.1/replica-%d", m.begun, m.begun), owned: map[string]string{}, back: map[string]string{}}
	answer := m.send(s, "join")
	if len(answer) != 2 || answer[0] != int64(1) {
		m.Fatalf("join: %v", answer)
	}
	s.session, s.until = fmt.Sprint(answer[1]), time.Now().Add(partsTTL)
	s.version = s.session
	m.seats = append(m.seats, s)
	m.told[s.session] = true
	return s
}

// call makes a call of a session. Its reply may be lost.
func (m *partsModel) call(s *seat, lost bool) {
	m.Helper()
	mode := "sync"
	if s.leaves {
		mode = "leave"
	}
	delete(m.told, s.session)
	answer := m.send(s, mode)
	if lost {
		m.told[s.session] = true
		return
	}
	if answer[0] == int64(0) {
		if s.until.After(time.Now()) && !s.lagged {
			m.Errorf("%s was lost before its end", s.session)
		}
		m.gone(s)
		return
	}
	for p := range s.back {
		delete(s.owned, p)
	}
	clear(s.back)
	listed := map[string]string{}
	for i := 4; i < len(answer); i += 2 {
		listed[fmt.Sprint(answer[i])] = fmt.Sprint(answer[i+1])
	}
	maps.DeleteFunc(s.owned, func(p, token string) bool { return answer[0] == int64(2) && listed[p] != token })
	known, _ := strconv.ParseFloat(s.version, 64)
	for p, token := range listed {
		if s.owned[p] != "" {
			continue
		}
		s.owned[p] = token
		if number, _ := strconv.ParseFloat(token, 64); number <= known {
			s.back[p] = token
			m.told[s.session] = true
		} else if number <= m.newest[p] {
			m.Fatalf("%s begins %s with the token %s after %.0f", s.session, p, token, m.newest[p])
		} else {
			m.newest[p] = number
		}
	}
	s.version, s.lagged, s.surplus = fmt.Sprint(answer[1]), false, int(answer[3].(int64))
}

// snapshot returns the set and the counter of tokens.
func (m *partsModel) snapshot() (parts []redis.Z, fence string) {
	m.Helper()
	parts, err := m.Raw.ZRangeWithScores(m.Context(), key("parts"), 0, -1).Result()
	testenv.Must(m, err)
	return parts, m.Raw.Get(m.Context(), key("fence")).Val()
}

// failover gives the server the set and the counter of tokens that it had at an earlier time.
func (m *partsModel) failover(parts []redis.Z, fence string) {
	m.Helper()
	ctx := m.Context()
	_, err := m.Raw.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key("parts"))
		p.ZAdd(ctx, key("parts"), parts...)
		p.PExpire(ctx, key("parts"), partsTTL)
		p.Set(ctx, key("fence"), fence, time.Hour)
		return nil
	})
	testenv.Must(m, err)
	clear(m.tokens)
	for _, s := range m.seats {
		s.lagged = true
	}
}

func (m *partsModel) gone(s *seat) {
	s.until = time.Time{}
	m.seats = slices.DeleteFunc(m.seats, func(o *seat) bool { return o == s })
	delete(m.told, s.session)
}

// ends lets the work of one partition that is to be given back return.
func (m *partsModel) ends(s *seat) {
	for _, p := range slices.Sorted(maps.Keys(s.owned)) {
		if len(s.back) < s.surplus && s.back[p] == "" {
			s.back[p] = s.owned[p]
			m.told[s.session] = true
			return
		}
	}
}

func (m *partsModel) quit(s *seat) {
	m.Helper()
	s.until = time.Time{}
	m.send(s, "quit")
	m.gone(s)
}

// settle lets those call who were told to, in a random order, until nobody is. It returns how many partitions have
// got another leader. Nobody renews, so the messages are all that they know.
func (m *partsModel) settle(where string) (moves int) {
	m.Helper()
	m.grants = 0
	for steps := 0; len(m.told) > 0; steps++ {
		if steps > 100*m.n {
			m.Fatalf("%s: it does not settle: %v", where, m.dump())
		}
		all := slices.Sorted(maps.Keys(m.told))
		session := all[m.random.IntN(len(all))]
		i := slices.IndexFunc(m.seats, func(s *seat) bool { return s.session == session })
		if i < 0 {
			delete(m.told, session)
			continue
		}
		s := m.seats[i]
		if m.call(s, false); !s.until.IsZero() {
			m.ends(s)
		}
		if s.leaves && len(s.owned) == 0 {
			m.quit(s)
		}
	}
	live := len(m.seats)
	if s := m.state(); s.free > 0 {
		m.Fatalf("%s: nobody leads %d partitions: %+v", where, s.free, s)
	}
	for _, s := range m.seats {
		if len(s.owned) < m.n/live || len(s.owned) > (m.n+live-1)/live {
			m.Fatalf("%s: %d replicas settle, and one has %d of %d partitions: %v", where, live, len(s.owned), m.n, m.dump())
		}
		if answer := m.send(s, "renew"); answer[0] != int64(1) {
			m.Fatalf("%s: a renewal is answered with %v", where, answer)
		}
	}
	return m.grants
}

// Every state that replicas reach by any order of joins, calls, returns, ends and deaths, with lost, repeated and
// late requests: a partition has one leader, nothing is taken from a replica that lives, tokens grow, and the
// replicas settle at equal shares with no more moves than a restart needs.
func TestPartitionsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Size(12, 1000)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			testenv.InBubble(t, func(e *testenv.Env) { playParts(e, seed) })
		})
	}
}

func playParts(e *testenv.Env, seed uint64) {
	e.Helper()
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	m := &partsModel{
		Env: e, random: random, n: 1 + random.IntN(14),
		told: map[string]bool{}, tokens: map[string]float64{}, newest: map[string]float64{},
	}
	m.sub = e.Raw.Subscribe(e.Context(), shares)
	defer m.sub.Close()
	_, err := m.sub.Receive(e.Context())
	testenv.Must(e, err)
	m.join()
	parts, fence := m.snapshot()
	for range 60 {
		e.Pass(time.Millisecond) // so the clock is ahead of the tokens
		s := m.seats[random.IntN(len(m.seats))]
		switch random.IntN(12) {
		case 0:
			if len(m.seats) < 6 {
				m.join()
			}
		case 1:
			if len(m.seats) > 2 {
				m.quit(s)
			}
		case 2:
			s.leaves = true
			m.told[s.session] = true
		case 3:
			if len(m.late) > 0 {
				m.late[0]()
				m.late = m.late[1:]
			}
		case 4, 5:
			m.send(s, "renew")
		case 6:
			e.Pass(4 * time.Second)
		case 7:
			m.call(s, true)
		case 8:
			parts, fence = m.snapshot()
		case 9:
			m.failover(parts, fence)
		default:
			m.call(s, false)
			m.ends(s)
		}
		for _, s := range slices.Clone(m.seats) {
			if !s.until.After(time.Now()) {
				m.gone(s)
			}
		}
		if len(m.seats) == 0 {
			m.join()
		}
	}
	for range 3 { // until the leases of members that have left before a failover end
		e.Pass(4 * time.Second)
		for _, s := range slices.Clone(m.seats) {
			if m.send(s, "renew")[0] == int64(0) {
				m.gone(s)
			}
		}
	}
	m.late = nil
	for _, s := range m.seats {
		m.told[s.session] = s.until.After(time.Now())
	}
	m.join()
	m.settle("after the faults")
	m.join()
	m.settle("after a join")
	live := len(m.seats)
	m.seats[random.IntN(live)].leaves = true
	for _, s := range m.seats {
		m.told[s.session] = s.leaves
	}
	maps.DeleteFunc(m.told, func(_ string, told bool) bool { return !told })
	moves := m.settle("after a leave")
	m.join()
	if moves += m.settle("after a restart"); moves > 2*((m.n+live-1)/live) {
		e.Errorf("a restart moves %d of %d partitions of %d replicas", moves, m.n, live)
	}
}

// What the script stores and answers, to the millisecond and the number.
func TestPartitionsToTheMillisecond(t *testing.T) {
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		heard := e.Raw.Subscribe(e.Context(), shares)
		defer heard.Close()
		_, err := heard.Receive(e.Context())
		testenv.Must(e, err)
		us := func(more int64) string { return strconv.FormatInt(e.Now.UnixMicro()+more, 10) }
		share := func(me, mode string, ttl int, known, returned string) string {
			return e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:" + me)}, me, mode, ttl, 3, known, returned, shares)
		}
		wants := func(where, told string, want ...any) {
			e.Helper()
			got := map[string]string{}
			for _, z := range e.Raw.ZRangeWithScores(e.Context(), key("parts"), 0, -1).Val() {
				got[fmt.Sprint(z.Member)] = fmt.Sprintf("%.0f", z.Score)
			}
			all := map[string]string{}
			for i := 0; i < len(want); i += 2 {
				all[fmt.Sprint(want[i])] = fmt.Sprint(want[i+1])
			}
			if !maps.Equal(got, all) {
				e.Errorf("%s: %v, want %v", where, got, all)
			}
			e.Wants(where+": told", fmt.Sprint(e.Received(heard, shares)), told)
		}
		e.Wants("join", share("a", "join", 9000, "0", ""), "[1 "+us(0)+"]")
		wants("a joins", "[]", 0, 0, 1, 0, 2, 0, "ma", "-"+us(0), "e"+us(0), e.MS(9*time.Second), "c"+us(0), 10000)
		e.Wants("TTL", e.PTTL(key("parts")).Round(10*time.Millisecond).String(), "9s")
		e.Wants("renewal", share("a", "renew", 9000, us(0), ""), "2")
		e.Wants("a call", share("a", "sync", 9000, us(0), ""), fmt.Sprintf("[1 %[1]s -1 0 0 %[1]s 1 %[1]s 2 %[1]s]", us(1)))
		e.Wants("its repeat", share("a", "sync", 9000, us(0), ""), fmt.Sprintf("[2 %[1]s -1 0 0 %[1]s 1 %[1]s 2 %[1]s]", us(1)))
		e.Wants("the next one", share("a", "sync", 9000, us(1), ""), "[1 "+us(1)+" -1 0]")
		e.Wants("renewal of all", share("a", "renew", 9000, us(1), ""), "1")
		e.Wants("renewal with an older version", share("a", "renew", 9000, us(0), ""), "2")
		e.Wants("another n", e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:b")}, "b", "join", 9000, 4, 0, "", shares), "[-1 3]")
		e.Pass(time.Second)
		e.Wants("b joins", share("b", "join", 7000, "0", ""), "[1 "+us(1000000)+"]")
		wants("b joins", "["+shares+"  "+us(0)+" ]", 0, us(0), 1, us(0), 2, us(0), "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1),
			"v"+us(0), "-"+us(1), "ma", "-"+us(0), "e"+us(0), e.MS(9*time.Second), "c"+us(0), 10003,
			"mb", "-"+us(1000000), "e"+us(1000000), e.MS(8*time.Second), "c"+us(1000000), 10000)
		e.Wants("the TTL stays", e.PTTL(key("parts")).Round(10*time.Millisecond).String(), "8s")
		e.Wants("a is to give back one", share("a", "sync", 9000, us(1), ""), "[1 "+us(1)+" 7000 1]")
		e.Wants("another token", share("a", "sync", 9000, us(1), "2:17"), "[1 "+us(1)+" 7000 1]")
		e.Wants("another version", share("a", "sync", 9000, us(2), ""), fmt.Sprintf("[2 %[1]s 7000 1 0 %[1]s 1 %[1]s 2 %[1]s]", us(1)))
		e.Wants("it gives it back", share("a", "sync", 9000, us(1), "2:"+us(1)), "[1 "+us(1000001)+" 7000 0]")
		wants("it gives it back", "["+shares+"  "+us(1000000)+" ]", 0, us(0), 1, us(0), 2, 0, "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1),
			"v"+us(0), "-"+us(1000001), "ma", "-"+us(0), "e"+us(0), e.MS(10*time.Second), "c"+us(0), 10002,
			"mb", "-"+us(1000000), "e"+us(1000000), e.MS(8*time.Second), "c"+us(1000000), 10000)
		e.Wants("b only gives", share("b", "give", 7000, us(1000000), ""), "[1 "+us(1000000)+" 9000 0]")
		e.Wants("b takes it", share("b", "sync", 7000, us(1000000), ""), fmt.Sprintf("[1 %[1]s 9000 0 2 %[1]s]", us(1000002)))
		e.Wants("the TTL is that of the longest lease", e.PTTL(key("parts")).Round(10*time.Millisecond).String(), "9s")
		e.Wants("a leaves", share("a", "leave", 9000, us(1000001), ""), "[1 "+us(1000001)+" 7000 2]")
		e.Wants("a renewal of a leaver", share("a", "renew", 9000, us(1000001), ""), "2")
		wants("a leaves", "[]", 0, us(0), 1, us(0), 2, us(1000000), "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1000002),
			"v"+us(0), "-"+us(1000001), "v"+us(1000000), "-"+us(1000002),
			"ma", "-"+us(0), "e"+us(0), e.MS(10*time.Second), "d"+us(0), 20002,
			"mb", "-"+us(1000000), "e"+us(1000000), e.MS(8*time.Second), "c"+us(1000000), 10001)
		e.Pass(7 * time.Second)
		e.Wants("at its end", share("b", "renew", 7000, us(1000002), ""), "1")
		e.Pass(2*time.Second + time.Millisecond)
		e.Wants("after the end of a", share("a", "sync", 9000, us(1000001), ""), "[0]")
		e.Wants("a renewal after it", share("a", "renew", 9000, us(1000001), ""), "0")
		wants("after the end of a", "["+shares+"  "+us(1000000)+" ]", 0, 0, 1, 0, 2, us(1000000), "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1000002),
			"v"+us(1000000), "-"+us(1000002), "mb", "-"+us(1000000), "e"+us(1000000), e.MS(15*time.Second), "c"+us(1000000), 10001)
		e.Wants("a look", e.Run("parts_share", []string{key("parts")}, "", "read", 0, 0, 0, "", ""), fmt.Sprint(looked(e)))
		e.Wants("a quits too late", share("a", "quit", 5000, "0", ""), "0")
		e.Wants("its tombstone", e.PTTL(key("tomb:a")).Round(10*time.Millisecond).String(), "5s")
		e.Wants("a late join", share("a", "join", 9000, "0", ""), "[-2]")
		e.Wants("b quits", share("b", "quit", 0, "0", ""), "1")
		wants("b quits", "[]", 0, 0, 1, 0, 2, 0, "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1000002))
		e.Wants("no tombstone", e.PTTL(key("tomb:b")).String(), "-2ns")
		e.Wants("a smaller set", e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:c")}, "c", "join", 9000, 1, 0, "", shares), "[1 "+us(10001000)+"]")
		wants("a smaller set", "[]", 0, 0, "mc", "-"+us(10001000), "e"+us(10001000), e.MS(19001*time.Millisecond), "c"+us(10001000), 10000)
		e.Wants("c quits", e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:c")}, "c", "quit", 4000, 1, 0, "", shares), "1")
		e.Wants("with a tombstone", e.PTTL(key("tomb:c")).Round(10*time.Millisecond).String(), "4s")
	})
}

// Who is told, and only they: those that give back, also beside a session that leaves, and those that may take.
func TestWhoIsToldOfPartitions(t *testing.T) {
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		heard := e.Raw.Subscribe(e.Context(), shares)
		defer heard.Close()
		_, err := heard.Receive(e.Context())
		testenv.Must(e, err)
		versions := map[string]string{}
		share := func(me, mode, returned string) string {
			answer := e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:" + me)}, me, mode, 9000, 6, versions[me], returned, shares)
			if fields := strings.Fields(strings.Trim(answer, "[]")); len(fields) > 1 {
				versions[me] = fields[1]
			}
			return answer
		}
		sessions := map[string]string{}
		join := func(me string) {
			share(me, "join", "")
			sessions[me] = versions[me]
		}
		give := func(me string, partitions ...string) {
			var texts []string
			for _, p := range partitions {
				texts = append(texts, fmt.Sprintf("%s:%.0f", p, -e.Raw.ZScore(e.Context(), key("parts"), "t"+p).Val()))
			}
			share(me, "sync", strings.Join(texts, " "))
		}
		told := func(where, who string) {
			e.Helper()
			e.Wants(where+": told", fmt.Sprint(e.Received(heard, shares)), "["+shares+"  "+sessions[who]+" ]")
		}
		join("x")
		share("x", "sync", "")
		join("y")
		give("x", "3", "4", "5")
		share("y", "sync", "")
		join("z")
		give("x", "2")
		give("y", "5")
		share("z", "sync", "")
		e.Received(heard, shares)
		join("w")
		told("w joins", "x")
		give("x", "1")
		told("x gives back", "w")
		share("w", "sync", "")
		share("w", "leave", "")
		join("v")
		e.Wants("v joins, and w leaves: told", fmt.Sprint(e.Received(heard, shares)), "[]")
		join("u")
		told("u joins", "y")

		e.Pass(8 * time.Second)
		for _, me := range []string{"x", "y", "w", "v", "u"} {
			share(me, "renew", "")
		}
		e.Received(heard, shares)
		e.Pass(2 * time.Second)
		e.Wants("z quits after its end", share("z", "quit", ""), "0")
		e.Wants("z quits after its end: told", fmt.Sprint(e.Received(heard, shares)), "["+shares+"  "+sessions["v"]+" "+sessions["u"]+" ]")
		share("v", "sync", "")
		e.Received(heard, shares)
		give("w", "1")
		e.Wants("more is free than u lacks: told", fmt.Sprint(e.Received(heard, shares)),
			"["+shares+"  "+sessions["u"]+" "+sessions["x"]+" "+sessions["v"]+" ]")
	})
}

// looked returns the set as the script answers it.
func looked(e *testenv.Timed) []any {
	all, err := e.Raw.Eval(e.Context(), "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", []string{key("parts")}).Slice()
	testenv.Must(e, err)
	return all
}
