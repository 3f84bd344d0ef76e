package cli_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
)

// played is a lottery in which a replica has drawn some noons and stopped.
type played struct {
	redis string // address
	file  string // of the SQLite database
	ticks []time.Time
	next  time.Time // the first noon that was not drawn
}

const playedEvery = 100 * time.Millisecond

func play(t *testing.T, noons int) played {
	t.Helper()
	redis := startRedis(t)
	p := played{redis: redis.Addr(), file: filepath.Join(t.TempDir(), "lottery.db")}
	r := serve(t, "--redis=redis://"+p.redis, "--database=sqlite:"+p.file, "--winners=3", "--identity=noon-1",
		"--schedule=@every "+playedEvery.String(), "--lease=1s", "--entrants="+write(t, "entrants.csv", fiveEntrants))
	r.await("draw committed", noons)
	if code := r.end(); code != cli.Done {
		t.Fatalf("exit code %d, want %d\n%s", code, cli.Done, r.logs)
	}
	for _, e := range r.logs.Entries() {
		if e.Message == "draw committed" {
			p.ticks = append(p.ticks, e.Tick)
		}
	}
	p.next = p.ticks[len(p.ticks)-1].Add(playedEvery)
	p.ticks = p.ticks[:noons]
	return p
}

// changed copies the database, changes the copy, and returns its DSN.
func (p played) changed(t *testing.T, statements ...string) string {
	t.Helper()
	data, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lottery.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return "sqlite:" + path
}

func (p played) verify(t *testing.T, dsn string, more ...string) (code int, stdout, stderr string) {
	t.Helper()
	last := p.ticks[len(p.ticks)-1]
	args := []string{
		"verify", "--redis=redis://" + p.redis, "--database=" + dsn, "--winners=3",
		"--since=" + p.ticks[0].Format(time.RFC3339Nano), "--until=" + last.Add(playedEvery).Format(time.RFC3339Nano),
	}
	if len(more) > 0 && strings.HasPrefix(more[0], "--redis=") {
		args = slices.Delete(args, 1, 2) // a second URL would be another server
	}
	return run(t.Context(), nil, append(args, more...)...)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	p := play(t, 6)
	ms := func(n int) string { return strconv.FormatInt(p.ticks[n].UnixMilli(), 10) }
	noTickMS := strconv.FormatInt(p.ticks[2].UnixMilli()+50, 10)
	// copied copies the rows of one tick to another tick.
	copied := func(from, to string) []string {
		return []string{
			"INSERT INTO draws SELECT job, " + to + ", attempt, token, drawn_by, drawn_at FROM draws WHERE tick = " + from,
			"INSERT INTO winners SELECT job, " + to + ", position, entrant_id FROM winners WHERE tick = " + from,
			"INSERT INTO noonlock_markers SELECT job, " + to + ", attempt, token, holder, applied_at FROM noonlock_markers WHERE tick = " + from,
		}
	}
	// unkeyed removes the keys from a table, as in tables that other software created.
	unkeyed := func(table string) []string {
		return []string{"CREATE TABLE copy AS SELECT * FROM " + table, "DROP TABLE " + table, "ALTER TABLE copy RENAME TO " + table}
	}
	for name, c := range map[string]struct {
		change []string
		more   []string
		want   []string // kind and number of the tick, sorted
	}{
		"nothing wrong": {},
		"missing":       {change: gone(" = " + ms(1)), want: []string{"unrecorded 1"}},
		"missing at the end": {
			more: []string{"--until=" + p.next.Add(playedEvery).Format(time.RFC3339Nano)},
			want: []string{fmt.Sprintf("missing %v", float64(p.next.Sub(p.ticks[0])/playedEvery))},
		},
		"extra":              {change: copied(ms(2), noTickMS), want: []string{"unledgered 2.5"}},
		"short":              {change: []string{"DELETE FROM winners WHERE position = 3 AND tick = " + ms(3)}, want: []string{"short 3"}},
		"a gap in positions": {change: []string{"UPDATE winners SET position = 7 WHERE position = 3 AND tick = " + ms(3)}, want: []string{"short 3"}},
		"repeated noon":      {change: append(unkeyed("draws"), "INSERT INTO draws SELECT * FROM draws WHERE tick = "+ms(4)), want: []string{"repeated 4"}},
		"repeated winner":    {change: append(unkeyed("winners"), "UPDATE winners SET entrant_id = (SELECT entrant_id FROM winners WHERE position = 1 AND tick = "+ms(4)+") WHERE position = 2 AND tick = "+ms(4)), want: []string{"repeated 4"}},
		"ineligible":         {change: []string{"UPDATE winners SET entrant_id = 'e' WHERE position = 2 AND tick = " + ms(5)}, want: []string{"ineligible 5"}},
		"no entrant":         {change: []string{"UPDATE winners SET entrant_id = 'x' WHERE position = 2 AND tick = " + ms(5)}, want: []string{"ineligible 5"}},
		"winners of no draw": {change: []string{"DELETE FROM draws WHERE tick = " + ms(0)}, want: []string{"undrawn 0", "unrecorded 0", "unrecorded 0"}},
		"no marker":          {change: []string{"DELETE FROM noonlock_markers WHERE tick = " + ms(0)}, want: []string{"unledgered 0"}},
		"a later token than the ledger's": {
			change: []string{"UPDATE draws SET token = token + 9 WHERE tick = " + ms(1), "UPDATE noonlock_markers SET token = token + 9 WHERE tick = " + ms(1)},
			want:   []string{"unledgered 1"},
		},
		"a later attempt than the ledger's": {
			change: []string{"UPDATE draws SET attempt = 2 WHERE tick = " + ms(1), "UPDATE noonlock_markers SET attempt = 2 WHERE tick = " + ms(1)},
			want:   []string{"unledgered 1"},
		},
		"another drawer than the ledger's": {change: []string{"UPDATE draws SET drawn_by = 'me' WHERE tick = " + ms(1)}, want: []string{"unledgered 1"}},
		"short, of a triggered run":        {change: append(copied(ms(2), "-"+ms(2)), "DELETE FROM winners WHERE position = 3 AND tick = -"+ms(2)), want: []string{"short 2"}},
		"another number of winners":        {more: []string{"--winners=4"}, want: []string{"short 0", "short 1", "short 2", "short 3", "short 4", "short 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := p.verify(t, p.changed(t, c.change...), c.more...)
			if got := findings(t, p, stdout); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q\n%s%s", got, c.want, stdout, stderr)
			}
			if len(c.want) == 0 {
				if code != cli.Done || stderr != "" || !strings.HasSuffix(stdout, "all noons were drawn, each once, with 3 different eligible winners, and the ledger records every draw\n") {
					t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
				}
				return
			}
			if code != cli.Failed || !strings.HasPrefix(stderr, fmt.Sprintf("lottery verify: %d problem", len(c.want))) || strings.Contains(stdout, "all noons") {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// gone removes all rows of some ticks.
func gone(which string) []string {
	var statements []string
	for _, table := range []string{"draws", "winners", "noonlock_markers"} {
		statements = append(statements, "DELETE FROM "+table+" WHERE tick"+which)
	}
	return statements
}

// findings parses the findings that verify has listed, with the numbers of the ticks.
func findings(t *testing.T, p played, stdout string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(stdout) {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "schedule", "range", "database", "ledger", "all":
			continue
		}
		rest = strings.TrimSpace(rest)
		stamp, detail, _ := strings.Cut(rest, " +00:00")
		at, err := time.Parse("2006-01-02 15:04:05.999", stamp)
		if err != nil || strings.TrimSpace(detail) == "" {
			t.Errorf("the line %q has no instant or no detail", line)
		}
		found = append(found, fmt.Sprintf("%s %v", kind, float64(at.Sub(p.ticks[0]))/float64(playedEvery)))
	}
	slices.Sort(found)
	return found
}

// Before the first noon, there is nothing to verify.
func TestVerifyNothing(t *testing.T) {
	t.Parallel()
	redis, file := startRedis(t), "sqlite:"+filepath.Join(t.TempDir(), "lottery.db")
	shared := []string{"--redis=redis://" + redis.Addr(), "--database=" + file, "--winners=3"}
	r := serve(t, append(shared, "--schedule=0 12 29 2 *", "--entrants="+write(t, "entrants.csv", fiveEntrants))...)
	r.awaitPage("/readyz", 200)
	code, stdout, stderr := run(t.Context(), nil, append([]string{"verify"}, shared...)...)
	if code != cli.Unseen || !strings.HasPrefix(stderr, "lottery verify: no noon from ") || !strings.HasSuffix(stderr, " (UTC) can be checked, so there is nothing to verify\n") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t.Context(), nil, append([]string{"verify", "--if-nothing=pass"}, shared...)...)
	if code != cli.Done || !strings.Contains(stdout, "\nno noon from ") || stderr != "" {
		t.Errorf("with --if-nothing=pass: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// The range begins with the lottery, and ends now. A schedule has billions of noons since 2001.
func TestVerifySince(t *testing.T) {
	t.Parallel()
	p := play(t, 3)
	for _, since := range [][]string{nil, {"--since=1h"}, {"--since=48h"}, {"--since=2001-01-01"}} {
		args := append([]string{"--redis=redis://" + p.redis, "--database=sqlite:" + p.file, "--winners=3", "--until=" + p.next.Format(time.RFC3339Nano)}, since...)
		code, stdout, stderr := run(t.Context(), nil, append([]string{"verify"}, args...)...)
		if code != cli.Done || !strings.HasPrefix(stdout, "beginning   ") || !strings.Contains(stdout, "the ledger began then\n") || !strings.Contains(stdout, "\nall noons") {
			t.Errorf("%q: exit code %d\n%s%s", since, code, stdout, stderr)
		}
	}
	code, stdout, _ := run(t.Context(), nil, "winners", "--database=sqlite:"+p.file, "--since=1h")
	if n := strings.Count(stdout, "drawn by noon-1"); code != cli.Done || n < 3 {
		t.Errorf("winners: exit code %d, %d noons\n%s", code, n, stdout)
	}
}

// The ledger was lost, and no replica has created a new one.
func TestVerifyWithoutALedger(t *testing.T) {
	t.Parallel()
	p := play(t, 1)
	args := []string{"verify", "--if-nothing=pass", "--redis=redis://" + startRedis(t).Addr(), "--database=sqlite:" + p.file, "--winners=3"}
	code, stdout, stderr := run(t.Context(), nil, args...)
	if code != cli.Failed || !strings.Contains(stdout, "\nunledgered  ") {
		t.Errorf("after draws: exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t.Context(), nil, append(args, "--until=2001-01-01")...)
	if code != cli.Unseen || !strings.Contains(stderr, "there is no ledger in Redis") {
		t.Errorf("before draws: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// Data that cannot be read is an error, which contains no password.
func TestVerifyWithoutServers(t *testing.T) {
	t.Parallel()
	p := play(t, 1)
	for name, more := range map[string][]string{
		"Redis":    {"--redis=redis://:" + secret + "@127.0.0.1:1"},
		"database": {"--database=mysql://user:" + secret + "@127.0.0.1:1/lottery"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := p.verify(t, p.changed(t), more...)
			if code != cli.Unseen || !strings.Contains(stderr, "127.0.0.1:1") || strings.Contains(stderr, secret) {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
		})
	}
}

func TestWinners(t *testing.T) {
	t.Parallel()
	p := play(t, 3)
	since, until := p.ticks[1].Format(time.RFC3339Nano), p.ticks[2].Format(time.RFC3339Nano)
	code, stdout, stderr := run(t.Context(), nil, "winners", "--database=sqlite:"+p.file, "--since="+since, "--until="+until, "--time-zone=Asia/Shanghai")
	if code != cli.Done || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	zone := time.FixedZone("", 8*60*60)
	if want := p.ticks[1].In(zone).Format("2006-01-02 15:04:05.999 -07:00") + "  drawn by noon-1 at attempt 1, token "; len(lines) != 4 || !strings.HasPrefix(lines[0], want) {
		t.Fatalf("got\n%s\nwant one noon that begins with %q, with 3 winners", stdout, want)
	}
	for i, line := range lines[1:] {
		if id, ok := strings.CutPrefix(line, fmt.Sprintf("    %d  ", i+1)); !ok || len(id) != 1 || id < "a" || id > "d" {
			t.Errorf("the winner %d is %q", i+1, line)
		}
	}

	of := " SET tick = -tick WHERE tick = " + strconv.FormatInt(p.ticks[1].UnixMilli(), 10)
	file := p.changed(t, "UPDATE draws"+of, "UPDATE winners"+of)
	code, triggered, _ := run(t.Context(), nil, "winners", "--database="+file, "--since="+since, "--until="+until, "--time-zone=Asia/Shanghai")
	if code != cli.Done || triggered != strings.Replace(stdout, "  drawn", "  (triggered)  drawn", 1) {
		t.Errorf("of a triggered draw: exit code %d\n%s", code, triggered)
	}

	code, stdout, _ = run(t.Context(), nil, "winners", "--database=sqlite:"+p.file, "--until=2001-01-02")
	if want := "no noon was drawn before 2001-01-02 00:00:00 +00:00\n"; code != cli.Done || stdout != want {
		t.Errorf("exit code %d, %q; want %q", code, stdout, want)
	}
	code, stdout, _ = run(t.Context(), nil, "winners", "--database=sqlite:"+p.file, "--since=2001-01-01", "--until=2001-01-02")
	if want := "no noon was drawn from 2001-01-01 00:00:00 +00:00 to before 2001-01-02 00:00:00 +00:00\n"; code != cli.Done || stdout != want {
		t.Errorf("exit code %d, %q; want %q", code, stdout, want)
	}
}
