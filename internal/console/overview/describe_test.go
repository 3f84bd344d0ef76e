package overview_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

var errNo = errors.New("no")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ago returns an instant some seconds before now.
func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

// told returns the cells that apply.
func told(cells []overview.Cell) string {
	var all []string
	for _, c := range cells {
		if text := c.Relative(now); text != "" {
			all = append(all, c.Label+" "+text)
		}
	}
	return strings.Join(all, " | ")
}

// lines returns the lines of a Description, and those of the rows of its lists after their titles.
func lines(d overview.Description) (all []string) {
	all = append(all, told(d.Lines))
	for _, l := range d.Lists {
		for _, row := range l.Rows {
			all = append(all, l.Title+": "+told(row.Cells))
		}
	}
	return all
}

// Things of each kind are shown in a list, and alone, with these texts.
func TestDescribe(t *testing.T) {
	t.Parallel()
	slot := 1
	for _, c := range []struct {
		thing overview.Thing
		row   string
		all   []string
	}{
		{
			overview.Thing{Kind: overview.Elections, Election: overview.Election{
				Leader: "a", Token: 17, Acquired: ago(90), Lease: 15000, Left: 9960, Metadata: map[string]string{"zone": "north", "disk": "1"},
				Asked: &election.ResignRequest{By: "ann", Reason: "drained", To: "b"}, Candidates: []election.Candidate{{Identity: "b", Since: ago(5), Promoted: true}},
			}},
			"state led | leader a | since 1m30s ago | expires in 10s | candidates 1",
			[]string{
				"state led | leader a | since 1m30s ago | expires in 10s | token 17 | asked to transfer to b, by ann: drained | metadata disk=1, zone=north",
				"Candidates, the next leader first: candidate b | since 5s ago | promoted yes",
			},
		},
		{
			overview.Thing{Kind: overview.Elections, Election: overview.Election{
				Last: "a", Token: 17, Acquired: ago(90), Released: ago(2), Asked: &election.ResignRequest{By: "ann"},
			}},
			"state no leader",
			[]string{"state no leader | token 17 | last leader a | resigned 2s ago | asked to resign, by ann"},
		},
		{
			overview.Thing{Kind: overview.Elections, Election: overview.Election{Last: "a", Token: 17, Granted: "b"}},
			"state beginning",
			[]string{"state beginning | granted to b | token 17 | last leader a"},
		},
		{
			overview.Thing{Kind: overview.Locks, Lock: lockcore.Inspection{
				Kind: lockcore.LockReadWrite, Holders: []lockcore.Holder{{Identity: "a", Owner: "import", Reads: true, Token: 9, Since: ago(3700), TTL: time.Minute}},
				Waiters: []lockcore.Waiter{{Identity: "b", Since: ago(1), Alive: true}, {Identity: "c", Owner: "x", Reads: true, Since: ago(1)}},
			}},
			"state held | kind readwrite | holder a for import (reads) | since 1h2m ago | expires in 1m | waiters 2",
			[]string{
				"state held | kind readwrite | holder a for import (reads) | since 1h2m ago | expires in 1m | token 9",
				"Waiters, the next one first: waiter b | since 1s ago",
				"Waiters, the next one first: waiter c for x (reads) | since 1s ago | state does not answer",
			},
		},
		{
			overview.Thing{Kind: overview.Locks, Lock: lockcore.Inspection{
				Kind: lockcore.LockSemaphore, Slots: 3,
				Holders: []lockcore.Holder{{Identity: "a", Slot: new(int), Token: 7, TTL: time.Second}, {Identity: "b", Slot: &slot, Token: 8, TTL: 2 * time.Second}},
			}},
			"state held | kind semaphore 2/3 | holder a (slot 0) +1 | expires in 2s",
			[]string{
				"state held | kind semaphore 2/3 | holder a (slot 0) +1 | expires in 2s | token 8",
				"Holders: holder a (slot 0) | token 7 | expires in 1s", "Holders: holder b (slot 1) | token 8 | expires in 2s",
			},
		},
		{
			overview.Thing{Kind: overview.Locks, Lock: lockcore.Inspection{Kind: lockcore.LockForeign, NoTTL: true, Holders: []lockcore.Holder{{TTL: -1}}}},
			"state held | kind foreign | holder another program | expires never",
			[]string{`state held | kind foreign | holder another program | expires never | note the key has no TTL, so waiters may wait for ever; see "noonctl release"`},
		},
		{
			overview.Thing{Kind: overview.Locks, Lock: lockcore.Inspection{Kind: lockcore.LockFree, Servers: []lockcore.ServerView{
				{Address: "x:1", Member: true, List: 3, Holders: []lockcore.Holder{{}}}, {Address: "x:2", Err: errNo}, {Address: "x:3", Member: true, Waits: time.Second},
			}}},
			"state free | kind free",
			[]string{
				"state free | kind free", "Servers: server x:1 | state member | list 3 | holder another program",
				"Servers: server x:2 | state no", "Servers: server x:3 | state grants nothing yet | waits 1s",
			},
		},
		{
			overview.Thing{Kind: overview.Partitions, Set: overview.Set{
				Replicas: []overview.Share{{Identity: "", Leads: 1}, {Identity: "a", Leads: 2}, {Identity: "b", Leads: 1}}, Partitions: []partition.Partition{{Leader: "a", Token: 4}},
			}},
			"state 1 without a leader | partitions 1 | replicas 2 | led 3, 1-2 each",
			[]string{
				"state 1 without a leader | partitions 1 | replicas 2 | led 3, 1-2 each", "Replicas: replica no leader | leads 1", "Replicas: replica a | leads 2",
				"Replicas: replica b | leads 1", "Partitions: partition 0 | leader a | token 4",
			},
		},
		{
			overview.Thing{Kind: overview.Jobs, Job: &singleton.Status{Paused: true, PausedSince: ago(7), Next: now, Outcome: singleton.OutcomeFailed, LastSuccess: ago(400000)}},
			"state paused, no replicas | outcome failed | last success 4d15h ago",
			[]string{"state paused, no replicas | outcome failed | last success 4d15h ago | paused since 7s ago"},
		},
	} {
		c.thing.Now = now
		if got := told(c.thing.Row()); got != c.row {
			t.Errorf("in a list: %s\n   want %s", got, c.row)
		}
		if got := lines(c.thing.Describe()); !slices.Equal(got, c.all) {
			t.Errorf("alone:\n%s\n   want\n%s", strings.Join(got, "\n"), strings.Join(c.all, "\n"))
		}
	}
}

// All about a job: its open runs, its replicas and definitions, its history with the attempts that failed, and the acts of
// operators. A run can be canceled or run again if that does something.
func TestDescribeAJob(t *testing.T) {
	t.Parallel()
	ann := &singleton.Action{At: ago(20), Verb: "trigger", RunID: singleton.RunID{Tick: ago(20), Triggered: true}, By: "ann", Reason: "a test"}
	tick := func(seconds int) singleton.RunID { return singleton.RunID{Tick: ago(seconds)} }
	attempt := func(n int, err string) singleton.Attempt {
		return singleton.Attempt{Number: n, Holder: "a", Start: ago(99), End: ago(98), Error: err}
	}
	d := overview.Details{
		Status: singleton.Status{
			Now: now, Next: now.Add(time.Minute), Last: ago(60), Begun: ago(600), Replicas: 1, Schedule: "@every 1m",
			Open: []singleton.OpenRun{
				{RunID: ann.RunID, Attempt: 2, Holder: "a", Token: 5, Since: ago(10), Running: true, Attempts: []singleton.Attempt{attempt(1, "worse")}, Request: ann},
				{RunID: tick(5), Since: ago(5)},
				{RunID: tick(1), Since: ago(1), NotBefore: now.Add(time.Hour), Request: &singleton.Action{Verb: "trigger", By: "ann", ID: "order-7"}},
			},
			Definitions: []singleton.Definition{{ID: "d1", Acts: true, Replicas: []singleton.Replica{{Identity: "a", Since: ago(9)}}}},
		},
		Runs: []singleton.HistoryEntry{
			{RunID: tick(100), Attempt: 1, Holder: "a", Start: ago(40), End: ago(39), Outcome: singleton.OutcomeSucceeded, Attempts: []singleton.Attempt{attempt(1, "")}},
			{RunID: tick(100), Attempt: 2, Holder: "a", Start: ago(90), End: ago(88), Outcome: singleton.OutcomeFailed, Error: "no", Attempts: []singleton.Attempt{attempt(1, "bad"), attempt(2, "no")}},
			{RunID: tick(300), Last: ago(200), Count: 2, Outcome: singleton.OutcomeSkipped, Error: "missed"},
			{RunID: tick(400), Outcome: singleton.OutcomeUnknown, Attempt: 1, Error: "gone", Attempts: []singleton.Attempt{attempt(1, "gone")}},
		},
		Acts: []singleton.Action{*ann},
	}
	all := d.Describe()
	want := []string{
		"state running | next tick in 1m | schedule @every 1m | replicas 1 | last tick 1m ago | history since 10m ago",
		"Runs that have not ended: tick trigger/2026-01-02T03:03:45Z | state running | attempt 2 | holder a | token 5 | since 10s ago | requested trigger by ann: a test | error worse",
		"Runs that have not ended: tick 2026-01-02T03:04:00Z | state waits for a replica | since 5s ago",
		"Runs that have not ended: tick 2026-01-02T03:04:04Z | state waits for its instant | since 1s ago | not before in 1h | requested trigger order-7 by ann",
		"Replicas and their definitions: replica a | definition d1 | state runs the job | since 9s ago",
		"Acts of operators: at 2026-01-02T03:03:45Z | action trigger | tick trigger/2026-01-02T03:03:45Z | by ann: a test",
		"Attempts that failed: tick trigger/2026-01-02T03:03:45Z | attempt 1 | holder a | start 2026-01-02T03:02:26Z | took 1s | error worse",
		"Attempts that failed: tick 2026-01-02T03:02:25Z | attempt 1 | holder a | start 2026-01-02T03:02:26Z | took 1s | error bad",
		"Attempts that failed: tick 2026-01-02T03:02:25Z | attempt 2 | holder a | start 2026-01-02T03:02:26Z | took 1s | error no",
		"Runs, the newest first: tick 2026-01-02T03:02:25Z | outcome succeeded | attempt 1 | holder a | start 2026-01-02T03:03:25Z | took 1s",
		"Runs, the newest first: tick 2026-01-02T03:02:25Z | outcome failed | attempt 2 | holder a | start 2026-01-02T03:02:35Z | took 2s | error no",
		"Runs, the newest first: tick 2026-01-02T02:59:05Z | outcome skipped | to 2026-01-02T03:00:45Z | ticks 2 | error missed",
		"Runs, the newest first: tick 2026-01-02T02:57:25Z | outcome unknown | attempt 1 | error gone",
	}
	if got := lines(all); !slices.Equal(got, want) {
		t.Errorf("got\n%s\n   want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var rows []string
	for _, l := range all.Lists {
		for _, row := range l.Rows {
			if row.Key != 0 {
				rows = append(rows, fmt.Sprintf("%s %s %s", row.Class, row.Verb, number(row.Took)+"/"+number(row.Late)))
			}
		}
	}
	if want := []string{"running cancel /", "waiting cancel /", "waiting cancel /", "succeeded  1000/", "failed rerun 2000/1000", "skipped  /", "unknown rerun /"}; !slices.Equal(rows, want) {
		t.Errorf("runs %q, want %q", rows, want)
	}
	if got := (overview.Thing{Kind: overview.Jobs, Job: &d.Status}).Verbs(); !slices.Equal(got, []string{"trigger", "pause", "cancel"}) {
		t.Errorf("verbs %q", got)
	}
}

// number returns a number, or nothing.
func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
