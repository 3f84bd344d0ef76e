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
		"verify", "--redis=redis://" + p.redis, "--database=" + dsn, "--winners=3", "--schedule=@every " + playedEvery.String(),
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
	last := p.ticks[len(p.ticks)-1].Add(playedEvery)
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
		"missing":       {change: gone(" = " + ms(1)), want: []string{"missing 1", "unrecorded 1"}},
		"missing at the end": {
			change: gone(" >= " + strconv.FormatInt(last.UnixMilli(), 10)),
			more:   []string{"--until=" + last.Add(playedEvery).Format(time.RFC3339Nano)},
			want:   []string{"missing 6"},
		},
		"extra":              {change: copied(ms(2), noTickMS), want: []string{"extra 2.5", "unledgered 2.5"}},
		"short":              {change: []string{"DELETE FROM winners WHERE position = 3 AND tick = " + ms(3)}, want: []string{"short 3"}},
		"a gap in positions": {change: []string{"UPDATE winners SET position = 7 WHERE position = 3 AND tick = " + ms(3)}, want: []string{"short 3"}},
		"repeated noon":      {change: append(unkeyed("draws"), "INSERT INTO draws SELECT * FROM draws WHERE tick = "+ms(4)), want: []string{"repeated 4"}},
		"repeated winner":    {change: append(unkeyed("winners"), "UPDATE winners SET entrant_id = (SELECT entrant_id FROM winners WHERE position = 1 AND tick = "+ms(4)+") WHERE position = 2 AND tick = "+ms(4)), want: []string{"repeated 4"}},
		"ineligible":         {change: []string{"UPDATE winners SET entrant_id = 'e' WHERE position = 2 AND tick = " + ms(5)}, want: []string{"ineligible 5"}},
		"no entrant":         {change: []string{"UPDATE winners SET entrant_id = 'x' WHERE position = 2 AND tick = " + ms(5)}, want: []string{"ineligible 5"}},
		"winners of no draw": {change: []string{"DELETE FROM draws WHERE tick = " + ms(0)}, want: []string{"missing 0", "undrawn 0", "unrecorded 0", "unrecorded 0"}},
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
		"another number of winners":        {more: []string{"--winners=4"}, want: []string{"short 0", "short 1", "short 2", "short 3", "short 4", "short 5"}},
		// The ledger records the schedule of these noons.
		"another schedule":                      {more: []string{"--schedule=@every 200ms"}},
		"another schedule, and a noon too many": {change: copied(ms(2), noTickMS), more: []string{"--schedule=@every 300ms"}, want: []string{"extra 2.5", "unledgered 2.5"}},
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
		case "schedule", "database", "ledger", "all", "where":
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

func TestVerifyNothing(t *testing.T) {
	t.Parallel()
	p := play(t, 1)
	code, stdout, stderr := p.verify(t, p.changed(t), "--schedule=0 12 * * *", "--time-zone=Asia/Shanghai", "--since=2026-11-21 12:01", "--until=2026-11-22")
	want := `lottery verify: the schedule "0 12 * * *" has no noon from 2026-11-21 12:01:00 +08:00 to before 2026-11-22 00:00:00 +08:00 (Asia/Shanghai), so there is nothing to verify` + "\n"
	if code != cli.Unseen || stdout != "" || stderr != want {
		t.Errorf("exit code %d, %q, %q; want %d, %q", code, stdout, stderr, cli.Unseen, want)
	}
	code, stdout, stderr = p.verify(t, p.changed(t), "--if-nothing=pass", "--schedule=0 12 * * *", "--time-zone=Asia/Shanghai", "--since=2026-11-21 12:01", "--until=2026-11-22")
	want = strings.TrimPrefix(want, "lottery verify: ")
	if code != cli.Done || stdout != want || stderr != "" {
		t.Errorf("with --if-nothing=pass: exit code %d, %q, %q; want %d, %q", code, stdout, stderr, cli.Done, want)
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

	code, stdout, _ = run(t.Context(), nil, "winners", "--database=sqlite:"+p.file, "--since=2001-01-01", "--until=2001-01-02")
	if want := "no noon was drawn from 2001-01-01 00:00:00 +00:00 to before 2001-01-02 00:00:00 +00:00\n"; code != cli.Done || stdout != want {
		t.Errorf("exit code %d, %q; want %q", code, stdout, want)
	}
}
