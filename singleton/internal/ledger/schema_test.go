package ledger_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// present is a replica that claims every second's tick.
type present struct {
	*env
	ledger *ledger.Ledger
	state  ledger.State
	runs   map[int64]*ledger.Claim
}

func newPresent(e *env, identity string) *present {
	e.Helper()
	l, err := ledger.New(e.Client(identity), "draw", ledger.Config{Lease: lockcore.LeaseConfig{TTL: 5 * time.Second, NoRenewal: true}, MaxAttempts: 1000, KeepRuns: 1000, Definition: "d"})
	testenv.Must(e, err)
	return &present{env: e, ledger: l, runs: map[int64]*ledger.Claim{}}
}

func (p *present) claim() int64 {
	p.Helper()
	var err error
	p.state, err = p.ledger.Open(p.Context(), p.state)
	testenv.Must(p.env, err)
	tick := (p.state.Last.UnixMilli()/1000 + 1) * 1000
	for _, open := range p.state.Open {
		tick = open.Tick.UnixMilli()
	}
	if tick > p.state.Now.UnixMilli() {
		return 0
	}
	run, err := p.ledger.Claim(p.Context(), ledger.RunID{Tick: time.UnixMilli(tick)}, p.state, ledger.ClaimConfig{})
	if errors.Is(err, ledger.ErrNotClaimed) {
		return 0
	}
	testenv.Must(p.env, err)
	p.runs[tick] = run
	return tick
}

func (p *present) finish(tick int64) {
	p.Helper()
	testenv.Must(p.env, p.runs[tick].Complete(p.Context(), ledger.OutcomeSucceeded, ""))
}

// A ledger of the next version is kept, and its fields stay. A ledger of a later version is
// refused, and nothing is written.
func TestNewerSchemas(t *testing.T) {
	onBoth(t, func(e *env) {
		p := newPresent(e, "a")
		p.claim()
		job, open := e.key("job/draw", "job"), e.key("job/draw", "open")
		testenv.Must(e, e.Raw.HSet(e.Context(), job, "v", "2", "later", "kept").Err())
		e.Until("a tick was claimed", func() bool { return p.claim() != 0 })
		e.Until("and another", func() bool {
			for tick := range p.runs {
				p.finish(tick)
				delete(p.runs, tick)
			}
			return p.claim() != 0
		})
		if v := e.Raw.HMGet(e.Context(), job, "v", "later").Val(); v[0] != "2" || v[1] != "kept" {
			e.Errorf("of the next version's fields there is %v", v)
		}
		testenv.Must(e, e.Raw.HSet(e.Context(), job, "v", "3").Err())
		before := fmt.Sprint(e.Raw.HGetAll(e.Context(), job).Val(), e.Raw.HGetAll(e.Context(), open).Val())
		_, err1 := p.ledger.Open(e.Context(), p.state)
		_, err2 := p.ledger.Claim(e.Context(), ledger.RunID{Tick: p.state.Now.Truncate(time.Second)}, p.state, ledger.ClaimConfig{})
		_, err3 := p.ledger.Status(e.Context())
		_, err4 := p.ledger.Trigger(e.Context())
		tick := p.state.Now.Truncate(time.Second)
		err5 := p.ledger.Skip(e.Context(), p.state, ledger.Skip{First: tick, Last: tick, Count: 1, Reason: "missed"})
		_, err6 := p.ledger.Cancel(e.Context(), ledger.RunID{Tick: tick})
		for _, err := range []error{err1, err2, err3, err4, err5, err6, p.ledger.Pause(e.Context()), p.ledger.Resume(e.Context()), p.ledger.Rerun(e.Context(), ledger.RunID{Tick: tick}, true)} {
			testenv.MustIs(e, err, ledger.ErrNewerSchema)
		}
		if after := fmt.Sprint(e.Raw.HGetAll(e.Context(), job).Val(), e.Raw.HGetAll(e.Context(), open).Val()); after != before {
			e.Errorf("a ledger that is too new was changed from %s to %s", before, after)
		}
	})
}

// Entries that were written once can be read forever.
func TestHistoryIsReadForEver(t *testing.T) {
	inBubble(t, func(e *env) {
		noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
		for _, c := range []struct {
			entry string
			want  singleton.HistoryEntry
		}{
			{
				`{"tick":"1893499200000","attempt":"2","holder":"host-7","token":"1893499200000001","start":"1893499200001","end":"1893499201000","outcome":"succeeded","error":""}`,
				singleton.HistoryEntry{
					RunID: singleton.RunID{Tick: noon}, Attempt: 2, Holder: "host-7", Token: 1893499200000001, Start: noon.Add(time.Millisecond),
					End: noon.Add(time.Second), Outcome: ledger.OutcomeSucceeded,
					Attempts: []singleton.Attempt{{Number: 2, Holder: "host-7", Token: 1893499200000001, Start: noon.Add(time.Millisecond), End: noon.Add(time.Second)}},
				},
			},
			{
				`{"tick":"1893499200000","last":"1893499260000","count":"2","outcome":"skipped","error":"missed"}`,
				singleton.HistoryEntry{RunID: singleton.RunID{Tick: noon}, Last: noon.Add(time.Minute), Count: 2, Outcome: ledger.OutcomeSkipped, Error: "missed"},
			},
			{
				`{"tick":"1893499200000","attempt":"1","holder":"h","token":"7","start":"1893499200000","end":"1893499200000","outcome":"unknown","error":"x","a later field":[1]}`,
				singleton.HistoryEntry{RunID: singleton.RunID{Tick: noon}, Attempt: 1, Holder: "h", Token: 7, Start: noon, End: noon, Outcome: ledger.OutcomeUnknown, Error: "x", Attempts: []singleton.Attempt{{Number: 1, Holder: "h", Token: 7, Start: noon, End: noon, Error: "x"}}},
			},
			{
				`{"tick":"1893499200000","attempt":"2","holder":"h","token":"8","start":"1893499201000","end":"1893499202000","outcome":"failed","error":"y","tries":[{"attempt":"1","holder":"g","token":"7","start":"1893499200000","end":"1893499201000","error":"x"}]}`,
				singleton.HistoryEntry{
					RunID: singleton.RunID{Tick: noon}, Attempt: 2, Holder: "h", Token: 8, Start: noon.Add(time.Second), End: noon.Add(2 * time.Second), Outcome: ledger.OutcomeFailed, Error: "y",
					Attempts: []singleton.Attempt{
						{Number: 1, Holder: "g", Token: 7, Start: noon, End: noon.Add(time.Second), Error: "x"},
						{Number: 2, Holder: "h", Token: 8, Start: noon.Add(time.Second), End: noon.Add(2 * time.Second), Error: "y"},
					},
				},
			},
		} {
			testenv.Must(e, e.Raw.LPush(e.Context(), e.key("job/draw", "runs"), c.entry).Err())
			if got := e.runs(1)[0]; !reflect.DeepEqual(got, c.want) {
				e.Errorf("read\n%+v, want\n%+v", got, c.want)
			}
		}
		testenv.Must(e, e.Raw.LPush(e.Context(), e.key("job/draw", "runs"), "nonsense").Err())
		if _, err := e.job().Runs(e.Context(), 1); err == nil {
			e.Error("an entry that is no JSON was read")
		}
	})
}
