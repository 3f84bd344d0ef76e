package ledger_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A long history is read page by page, from the newest entry on: each entry is found, and nothing else.
// Mutants: a page begins after the first entry, or ends before the last one; a page is read twice, or
// without end.
func TestHistoryIsReadInPages(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		e.opened(l)
		base := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, size := range []int{100, 101, 250} {
			for _, at := range []int{0, 1, 99, 100, 101, 199, 200, 249} {
				testenv.Must(e, e.Raw.Del(e.Context(), e.key("job/draw", "runs"), e.key("job/draw", "job")).Err())
				e.opened(l)
				for i := range size {
					tick := base.Add(time.Duration(i) * time.Second).UnixMilli()
					testenv.Must(e, e.Raw.RPush(e.Context(), e.key("job/draw", "runs"), fmt.Sprintf(`{"tick":"%d","outcome":"failed"}`, tick)).Err())
				}
				err := l.Rerun(e.Context(), ledger.RunID{Tick: base.Add(time.Duration(at) * time.Second)}, false)
				if found := err == nil; found != (at < size) || !found && !errors.Is(err, ledger.ErrNoRun) {
					e.Errorf("entry %d of %d: %v", at, size, err)
				}
			}
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
