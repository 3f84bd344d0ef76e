package lockcore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A ledgerUser is a replica as far as the ledger can tell, of this version or of
// the one before.
type ledgerUser interface {
	// claim claims the tick after the newest accounted one, or one that is open
	// and dead; zero: there was nothing to claim.
	claim() (tick int64)
	// finish completes or gives up what it has claimed; false: superseded.
	finish(tick int64, complete bool) bool
}

// schema1 is a replica that runs the scripts of schema 1.
type schema1 struct {
	*env
	number  int
	scripts map[string]string
	runs    map[int64]string
}

var schemaInclude = regexp.MustCompile(`(?m)^--@include (\w+)$`)

func newSchema1(e *env, number int) *schema1 {
	e.Helper()
	s := &schema1{env: e, number: number * 1_000_000, scripts: map[string]string{}, runs: map[int64]string{}}
	read := func(name string) string {
		text, err := os.ReadFile("testdata/schema1/" + name + ".lua")
		must(e, err)
		return string(text)
	}
	for _, name := range []string{"job_open", "job_claim", "job_complete", "job_abandon"} {
		s.scripts[name] = schemaInclude.ReplaceAllStringFunc(read(name), func(line string) string {
			return read("part_" + strings.TrimPrefix(line, "--@include "))
		})
	}
	return s
}

func (s *schema1) eval(name string, parts []string, args ...any) []any {
	s.Helper()
	keys := make([]string, len(parts))
	for i, part := range parts {
		keys[i] = s.key("job/draw", part)
	}
	answer, err := s.raw.Eval(s.Context(), s.scripts[name], keys, args...).Result()
	if err != nil {
		s.Fatalf("schema 1, %s: %v", name, err)
	}
	if list, ok := answer.([]any); ok {
		return list
	}
	return []any{answer}
}

func (s *schema1) claim() int64 {
	s.Helper()
	state := s.eval("job_open", []string{"job", "open", "runs"}, "", "", "", 1000, int64(40*24*time.Hour/time.Millisecond))
	if len(state) < 6 {
		s.Fatalf("schema 1 cannot use the ledger: %v", state)
	}
	now := state[0].(int64)
	last, err := strconv.ParseInt(state[1].(string), 10, 64)
	must(s.env, err)
	tick := (last/1000 + 1) * 1000
	for i := 6; i < len(state); i += 2 {
		open, err := strconv.ParseInt(state[i].(string), 10, 64)
		must(s.env, err)
		tick = open
	}
	if tick > now {
		return 0
	}
	s.number++
	me := fmt.Sprintf("nl1:OLD.%d.u/old", s.number)
	answer := s.eval("job_claim", []string{"job", "open", "runs", "fence", fmt.Sprintf("tomb:old.%d", s.number)},
		me, tick, 5000, last, 1000, "0", 1000, int64(40*24*time.Hour/time.Millisecond), "old", "", "", "", "", "")
	if answer[0] != int64(1) {
		return 0
	}
	s.runs[tick] = me
	return tick
}

func (s *schema1) finish(tick int64, complete bool) bool {
	s.Helper()
	me := s.runs[tick]
	tomb := "tomb:" + strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(me), "nl1:"), ".u/old")
	if !complete {
		return s.eval("job_abandon", []string{"job", "open", tomb}, me, tick, "1", 300_000)[0] == int64(1)
	}
	return s.eval("job_complete", []string{"job", "open", "runs", tomb}, me, tick, "succeeded", "", 1000, 300_000)[0] == int64(1)
}

// present is a replica of this version.
type present struct {
	*env
	ledger *lockcore.Ledger
	state  lockcore.LedgerState
	runs   map[int64]*lockcore.Run
}

func newPresent(e *env, identity string) *present {
	e.Helper()
	l, err := e.client(identity).Ledger("draw", lockcore.LedgerConfig{Lease: lockcore.LeaseConfig{TTL: 5 * time.Second, NoRenewal: true}, MaxAttempts: 1000, KeepRuns: 1000, Definition: "d"})
	must(e, err)
	return &present{env: e, ledger: l, runs: map[int64]*lockcore.Run{}}
}

func (p *present) claim() int64 {
	p.Helper()
	var err error
	p.state, err = p.ledger.Open(p.Context(), p.state)
	must(p.env, err)
	tick := (p.state.Last.UnixMilli()/1000 + 1) * 1000
	for _, open := range p.state.Open {
		tick = open.Tick.UnixMilli()
	}
	if tick > p.state.Now.UnixMilli() {
		return 0
	}
	run, err := p.ledger.Claim(p.Context(), time.UnixMilli(tick), p.state, lockcore.ClaimConfig{})
	if errors.Is(err, lockcore.ErrNotClaimed) {
		return 0
	}
	must(p.env, err)
	p.runs[tick] = run
	return tick
}

func (p *present) finish(tick int64, complete bool) bool {
	p.Helper()
	if !complete {
		return p.runs[tick].Abandon(p.Context(), true) == nil
	}
	err := p.runs[tick].Complete(p.Context(), lockcore.OutcomeSucceeded, "")
	if err != nil && !errors.Is(err, lockcore.ErrSuperseded) {
		p.Fatal(err)
	}
	return err == nil
}

// Replicas of this version and of the one before share a job: every tick is
// completed once, whoever claims, gives up, dies and takes over, and each reads
// what the other has written.
// Mutants: a version refuses the other's ledger; it drops the other's fields; it
// writes a record that the other cannot read.
func TestSchemasSideBySide(t *testing.T) {
	onBoth(t, func(e *env) {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's choices
		users := []ledgerUser{newSchema1(e, 1), newPresent(e, "new-1"), newSchema1(e, 2), newPresent(e, "new-2")}
		rounds, dies := 24, 0.0
		if e.bubble != nil {
			rounds, dies = 200, 0.1
		}
		completed := map[int64]int{}
		late := map[int64]ledgerUser{}
		for round := range rounds {
			e.pass(300 * time.Millisecond)
			user := users[round/4%len(users)]
			if e.bubble != nil {
				user = users[random.IntN(len(users))]
			}
			tick := user.claim()
			if tick == 0 {
				continue
			}
			switch x := random.Float64(); {
			case x < dies:
				late[tick] = user // taken over once its hold is over
				e.pass(5100 * time.Millisecond)
				continue
			case x < 0.3:
				if !user.finish(tick, false) {
					e.Errorf("tick %d could not be given up", tick)
				}
				continue
			}
			if before := late[tick]; before != nil && before != user {
				if before.finish(tick, true) {
					e.Errorf("tick %d: a completion by its first holder was accepted after the takeover", tick)
				}
			}
			if user.finish(tick, true) {
				completed[tick]++
			}
		}
		if len(completed) < rounds/10 {
			e.Fatalf("only %d ticks were completed", len(completed))
		}
		runs, err := users[1].(*present).ledger.Runs(e.Context(), 1000)
		must(e, err)
		by := map[string]int{}
		for i, r := range runs {
			by[strings.TrimRight(r.Holder, "-12")]++
			if completed[r.Tick.UnixMilli()] != 1 {
				e.Errorf("tick %v was completed %d times", r.Tick, completed[r.Tick.UnixMilli()])
			}
			if i > 0 && runs[i-1].Tick.Sub(r.Tick) != time.Second {
				e.Errorf("after tick %v came %v", r.Tick, runs[i-1].Tick)
			}
		}
		if len(runs) != len(completed) || by["old"] == 0 || by["new"] == 0 {
			e.Errorf("%d entries for %d ticks, by %v", len(runs), len(completed), by)
		}
		if v := e.raw.HGet(e.Context(), e.key("job/draw", "job"), "v").Val(); v != "2" {
			e.Errorf("the ledger's schema is %s", v)
		}
		e.Logf("completed by version: %v", by)
	})
}

// A ledger of the next version is kept, its fields are left as they are; one of a
// version after that is refused, and nothing is written.
func TestNewerSchemas(t *testing.T) {
	onBoth(t, func(e *env) {
		p := newPresent(e, "a")
		p.claim()
		job, open := e.key("job/draw", "job"), e.key("job/draw", "open")
		must(e, e.raw.HSet(e.Context(), job, "v", "3", "later", "kept").Err())
		e.until("a tick was claimed", func() bool { return p.claim() != 0 })
		e.until("and another", func() bool {
			for tick := range p.runs {
				p.finish(tick, true)
				delete(p.runs, tick)
			}
			return p.claim() != 0
		})
		if v := e.raw.HMGet(e.Context(), job, "v", "later").Val(); v[0] != "3" || v[1] != "kept" {
			e.Errorf("of the next version's fields there is %v", v)
		}
		must(e, e.raw.HSet(e.Context(), job, "v", "4").Err())
		before := fmt.Sprint(e.raw.HGetAll(e.Context(), job).Val(), e.raw.HGetAll(e.Context(), open).Val())
		_, err1 := p.ledger.Open(e.Context(), p.state)
		_, err2 := p.ledger.Claim(e.Context(), p.state.Now.Truncate(time.Second), p.state, lockcore.ClaimConfig{})
		_, err3 := p.ledger.Status(e.Context())
		_, err4 := p.ledger.Trigger(e.Context())
		tick := p.state.Now.Truncate(time.Second)
		err5 := p.ledger.Skip(e.Context(), p.state, lockcore.Skip{First: tick, Last: tick, Count: 1, Reason: "missed"})
		for _, err := range []error{err1, err2, err3, err4, err5, p.ledger.Pause(e.Context()), p.ledger.Resume(e.Context())} {
			mustIs(e, err, lockcore.ErrNewerSchema)
		}
		if after := fmt.Sprint(e.raw.HGetAll(e.Context(), job).Val(), e.raw.HGetAll(e.Context(), open).Val()); after != before {
			e.Errorf("a ledger that is too new was changed from %s to %s", before, after)
		}
	})
}

// Entries that earlier versions have written are read for ever.
func TestHistoryIsReadForEver(t *testing.T) {
	inBubble(t, func(e *env) {
		l, err := e.client("a").Ledger("draw", lockcore.LedgerConfig{})
		must(e, err)
		noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
		for _, c := range []struct {
			entry string
			want  lockcore.RunRecord
		}{
			{
				`{"tick":"1893499200000","attempt":"2","holder":"host-7","token":"1893499200000001","start":"1893499200001","end":"1893499201000","outcome":"succeeded","error":""}`,
				lockcore.RunRecord{
					Tick: noon, Attempt: 2, Holder: "host-7", Token: 1893499200000001, Start: noon.Add(time.Millisecond),
					End: noon.Add(time.Second), Outcome: lockcore.OutcomeSucceeded,
				},
			},
			{
				`{"tick":"1893499200000","last":"1893499260000","count":"2","outcome":"skipped","error":"missed"}`,
				lockcore.RunRecord{Tick: noon, Last: noon.Add(time.Minute), Count: 2, Outcome: lockcore.OutcomeSkipped, Error: "missed"},
			},
			{
				`{"tick":"1893499200000","attempt":"1","holder":"h","token":"7","start":"1893499200000","end":"1893499200000","outcome":"unknown","error":"x","a later field":[1]}`,
				lockcore.RunRecord{Tick: noon, Attempt: 1, Holder: "h", Token: 7, Start: noon, End: noon, Outcome: lockcore.OutcomeUnknown, Error: "x"},
			},
		} {
			must(e, e.raw.LPush(e.Context(), e.key("job/draw", "runs"), c.entry).Err())
			runs, err := l.Runs(e.Context(), 1)
			must(e, err)
			if runs[0] != c.want {
				e.Errorf("read\n%+v, want\n%+v", runs[0], c.want)
			}
		}
		must(e, e.raw.LPush(e.Context(), e.key("job/draw", "runs"), "nonsense").Err())
		if _, err := l.Runs(e.Context(), 1); err == nil {
			e.Error("an entry that is no JSON was read")
		}
	})
}
