package audit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

func cron(t *testing.T, fields string) schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(fields, schedule.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// given is the range of the noons 0 to 59, with one noon per minute.
func given(t *testing.T) audit.Stretch {
	t.Helper()
	return audit.Stretch{Span: store.Span{Since: at(0), Until: at(60)}, Schedule: cron(t, "* * * * *"), Name: "given"}
}

// The schedule of a lottery changes to more noons, and later to fewer.
func TestEachNoonIsCheckedAgainstItsSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		ctx := t.Context()
		var changes []singleton.ScheduleChange
		var runs []singleton.Entry
		start := time.Now()
		schedules := []string{"*/10 * * * *", "*/5 * * * *", "30 * * * *"}
		for n, fields := range schedules {
			client, err := lockcore.New(r.Client(), lockcore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			runner, err := singleton.NewRunner(client, singleton.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := runner.Add(noon.Job, fields, func(context.Context, singleton.Run) error { return nil }, noon.JobConfig(time.UTC)); err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- runner.Run(running) }()
			time.Sleep(2*time.Hour + 3*time.Minute + 30*time.Second)
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if n == len(schedules)-1 {
				job, err := singleton.NewJob(client, noon.Job)
				if err != nil {
					t.Fatal(err)
				}
				if changes, err = job.Schedules(ctx); err != nil || len(changes) != 3 {
					t.Fatalf("the changes are %+v, %v", changes, err)
				}
				ledger, err := singleton.NewJob(client, noon.Job)
				if err != nil {
					t.Fatal(err)
				}
				if runs, err = ledger.Runs(ctx, noon.KeepRuns); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if len(runs) < 36 {
			t.Fatalf("only %d noons were run", len(runs))
		}
		began := changes[0].Since.Add(time.Millisecond)
		for _, today := range schedules {
			asked := audit.Stretch{Span: store.Span{Since: start.Add(-time.Hour), Until: time.Now()}, Schedule: cron(t, today), Name: "given"}
			table, err := audit.InForce(changes, asked)
			if err != nil {
				t.Fatal(err)
			}
			want := table.Expect(store.Expected{})
			if len(table) != 4 || len(want.Unscheduled) != 1 || !want.Unscheduled[0].Until.Equal(began) {
				t.Fatalf("the timetable is %+v", table)
			}
			var ran []time.Time
			for _, run := range slices.Backward(runs) {
				ran = append(ran, run.Tick)
			}
			if !slices.EqualFunc(want.Ticks, ran, time.Time.Equal) {
				t.Errorf("expected are\n%v\nand run were\n%v", want.Ticks, ran)
			}
		}
	})
}

// spelled formats a timetable in minutes from base, with the number of noons; ? is unknown.
func spelled(t audit.Timetable) (words []string) {
	for _, s := range t {
		mark := ""
		if !s.Known {
			mark = "?"
		}
		words = append(words, fmt.Sprintf("%v-%v:%d%s", s.Since.Sub(base).Truncate(time.Second).Minutes(), s.Until.Sub(base).Truncate(time.Second).Minutes(), len(s.Noons), mark))
	}
	return words
}

// finite is a schedule that has a last noon.
type finite struct {
	schedule.Schedule
	last time.Time
}

func (f finite) Next(t time.Time) time.Time {
	if next := f.Schedule.Next(t); !next.After(f.last) {
		return next
	}
	return time.Time{}
}

func TestInForce(t *testing.T) {
	t.Parallel()
	minutely, tenth := cron(t, "* * * * *"), cron(t, "*/10 * * * *")
	change := func(minute float64, s schedule.Schedule, text string) singleton.ScheduleChange {
		return singleton.ScheduleChange{Since: at(minute), Schedule: s, Text: text}
	}
	for name, c := range map[string]struct {
		changes []singleton.ScheduleChange
		want    []string
	}{
		"a ledger that knows none":         {nil, []string{"0-60:60"}},
		"one, from before":                 {[]singleton.ScheduleChange{change(-5, tenth, "a")}, []string{"0-60:6"}},
		"one, from within":                 {[]singleton.ScheduleChange{change(20.5, tenth, "a")}, []string{"0-20.5:21?", "20.5-60:3"}},
		"one, from after":                  {[]singleton.ScheduleChange{change(70, tenth, "a")}, []string{"0-60:60?"}},
		"a noon at the change":             {[]singleton.ScheduleChange{change(-5, minutely, "a"), change(20, tenth, "b")}, []string{"0-20:21", "20-60:3"}},
		"two before":                       {[]singleton.ScheduleChange{change(-9, minutely, "a"), change(-5, tenth, "b")}, []string{"0-60:6"}},
		"another, and back":                {[]singleton.ScheduleChange{change(-9, tenth, "a"), change(10.5, minutely, "b"), change(20.5, tenth, "a")}, []string{"0-10.5:2", "10.5-20.5:10", "20.5-60:3"}},
		"the same again":                   {[]singleton.ScheduleChange{change(-9, tenth, "a"), change(10.5, tenth, "a")}, []string{"0-60:6"}},
		"one whose zone is not known here": {[]singleton.ScheduleChange{change(-9, tenth, "a"), change(10.5, nil, "b"), change(20.5, minutely, "c")}, []string{"0-10.5:2", "10.5-20.5:10?", "20.5-60:39"}},
		"a list that ends":                 {[]singleton.ScheduleChange{change(-9, finite{minutely, at(30)}, "ticks")}, []string{"0-30:31", "30-60:29?"}},
		"a list that has ended":            {[]singleton.ScheduleChange{change(-9, finite{minutely, at(-3)}, "ticks")}, []string{"0-60:60?"}},
		"a ledger that was set back":       {[]singleton.ScheduleChange{change(-9, tenth, "a"), change(40.5, minutely, "b"), change(20.5, tenth, "c")}, []string{"0-20.5:3", "20.5-60:3"}},
	} {
		table, err := audit.InForce(c.changes, given(t))
		if err != nil || !slices.Equal(spelled(table), c.want) {
			t.Errorf("%s: %v, %v; want %v", name, spelled(table), err, c.want)
		}
	}
	table, err := audit.InForce([]singleton.ScheduleChange{change(20.5, tenth, "a")}, given(t))
	if within := spelled(table.Within(at(10), at(40))); err != nil || !slices.Equal(within, []string{"10-20.5:11?", "20.5-40:1"}) {
		t.Errorf("within a range: %v, %v", within, err)
	}
}

// Where the schedule is unknown, no noon is reported as missing or extra. A draw that is not
// in the ledger is still reported.
func TestDrawsOfAnUnknownSchedule(t *testing.T) {
	t.Parallel()
	changes := []singleton.ScheduleChange{{Since: at(20.5), Schedule: cron(t, "*/10 * * * *"), Text: "a"}}
	table, err := audit.InForce(changes, given(t))
	if err != nil {
		t.Fatal(err)
	}
	ledger := standing{}
	for _, minute := range []float64{3, 30, 35, 40} {
		ledger.runs = append(ledger.runs, singleton.Entry{RunID: singleton.RunID{Tick: at(minute)}, Attempt: 1, Token: 1, Holder: "me", Outcome: singleton.OutcomeSucceeded})
	}
	want := table.Expect(store.Expected{Job: noon.Job, Winners: 1, Since: at(0), Until: at(60)})
	report, err := audit.Check(t.Context(), drawn(t, 3, 7, 30, 35, 40), ledger, want)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range report.Findings {
		if f.Kind != store.Ineligible {
			found = append(found, fmt.Sprint(f.Kind, " ", f.Tick.Sub(base).Minutes()))
		}
	}
	if want := []string{"unledgered 7", "extra 35", "missing 50"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
