package cli_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// A lottery has had three schedules, first with more noons and then with fewer. Each noon is
// checked against its own schedule. Real problems are found.
func TestVerifyAfterTwoScheduleChanges(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := played{redis: server.Addr(), file: filepath.Join(t.TempDir(), "lottery.db")}
	for _, every := range []string{"200ms", "100ms", "600ms"} {
		r := serve(t, "--redis=redis://"+p.redis, "--database=sqlite:"+p.file, "--winners=3",
			"--schedule=@every "+every, "--lease=1s", "--entrants="+write(t, "entrants.csv", fiveEntrants))
		r.await("draw committed", 4)
		if code := r.end(); code != cli.Done {
			t.Fatalf("exit code %d\n%s", code, r.logs)
		}
		for _, e := range r.logs.Entries() {
			if e.Message == "draw committed" {
				p.ticks = append(p.ticks, e.Tick)
			}
		}
	}
	first, last := p.ticks[0], p.ticks[len(p.ticks)-1]
	verify := func(dsn string) (code int, findings []string, stdout string) {
		t.Helper()
		code, stdout, stderr := run(t.Context(), nil, "verify", "--redis=redis://"+p.redis, "--database="+dsn, "--winners=3",
			"--since="+first.Format(time.RFC3339Nano), "--until="+last.Add(time.Millisecond).Format(time.RFC3339Nano))
		for line := range strings.Lines(stdout) {
			kind, _, _ := strings.Cut(line, " ")
			switch kind {
			case "schedule", "range", "database", "ledger", "all":
			case singleton.OutcomeSkipped:
				// The ledger records the noons without a replica as skipped.
				if !strings.HasSuffix(line, "rescheduled\n") {
					findings = append(findings, strings.TrimSpace(line))
				}
			default:
				findings = append(findings, strings.TrimSpace(line))
			}
		}
		return code, findings, stdout + stderr
	}
	_, findings, out := verify(p.changed(t))
	for _, every := range []string{"200ms", "100ms", "600ms"} {
		if strings.Count(out, `schedule    "@every `+every+`", since `) != 1 {
			t.Errorf("the schedule %s is not listed\n%s", every, out)
		}
	}
	if len(findings) > 0 {
		t.Errorf("found %q\n%s", findings, out)
	}

	lost := func(n int) string { return " = " + strconv.FormatInt(p.ticks[n].UnixMilli(), 10) }
	extra := strconv.FormatInt(last.UnixMilli()-200, 10) // a noon of the first two schedules only
	change := slices.Concat(gone(lost(1)), gone(lost(5)), []string{
		"INSERT INTO draws SELECT job, " + extra + ", attempt, token, drawn_by, drawn_at FROM draws WHERE tick" + lost(2),
		"INSERT INTO winners SELECT job, " + extra + ", position, entrant_id FROM winners WHERE tick" + lost(2),
		"INSERT INTO noonlock_markers SELECT job, " + extra + ", attempt, token, holder, applied_at FROM noonlock_markers WHERE tick" + lost(2),
	})
	code, findings, out := verify(p.changed(t, change...))
	var kinds []string
	for _, f := range findings {
		kind, _, _ := strings.Cut(f, " ")
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	if want := []string{"unledgered", "unrecorded", "unrecorded"}; code != cli.Failed || !slices.Equal(kinds, want) {
		t.Errorf("exit code %d, found %q, want %q\n%s", code, kinds, want, out)
	}
}

// A part of the range, or all of it, has a schedule that cannot be read here. verify does not pass,
// also if there may be nothing to verify.
func TestFault113_VerifyWithoutASchedule(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := played{redis: server.Addr(), file: filepath.Join(t.TempDir(), "lottery.db")}
	for _, every := range []string{"200ms", "100ms"} {
		r := serve(t, "--redis=redis://"+p.redis, "--database=sqlite:"+p.file, "--winners=3",
			"--schedule=@every "+every, "--lease=1s", "--entrants="+write(t, "entrants.csv", fiveEntrants))
		r.await("draw committed", 2)
		if code := r.end(); code != cli.Done {
			t.Fatalf("exit code %d\n%s", code, r.logs)
		}
		for _, e := range r.logs.Entries() {
			if e.Message == "draw committed" {
				p.ticks = append(p.ticks, e.Tick)
			}
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.redis})
	defer rdb.Close()
	const defs = "noonlock:{job/lottery}:defs"
	for n, want := range []int{cli.Unseen, cli.Failed} { // noons were skipped between the replicas
		entry := rdb.LIndex(t.Context(), defs, int64(n)).Val()
		unreadable := strings.Replace(entry, `"@every `, `"0 12 * * * in Mars/North`, 1)
		if err := rdb.LSet(t.Context(), defs, int64(n), unreadable).Err(); err != nil || unreadable == entry {
			t.Fatalf("%q, %v", entry, err)
		}
		since := p.ticks[0] // of both schedules
		if n == 0 {
			since = p.ticks[len(p.ticks)-1] // of the newest one
		}
		code, stdout, stderr := p.verify(t, p.changed(t), "--if-nothing=pass", "--since="+since.Format(time.RFC3339Nano))
		if code != want || !strings.Contains(stdout, "incomplete  from ") || !strings.Contains(stdout, "missing noons cannot be detected") {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
		testenv.Must(t, rdb.LSet(t.Context(), defs, int64(n), entry).Err())
	}
}
