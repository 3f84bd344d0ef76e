package demo

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
)

// listOf returns a list whose even numbers are eligible.
func listOf(n int) entrants.List {
	var text strings.Builder
	text.WriteString("id,eligible\n")
	for i := range n {
		fmt.Fprintf(&text, "id-%02d,%v\n", i, i%2 == 0)
	}
	return entrants.FS(fstest.MapFS{"list.csv": {Data: []byte(text.String())}}, "list.csv")
}

// The whole demo. Its checks are effective: each later change of the database is found.
func TestDemo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	list := listOf(40)
	d, err := raise(t.Context(), Config{Entrants: list, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close(t.Context())
	if err := d.play(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := d.check(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Log(out.String())
	audience(t, out.String())

	db, err := sql.Open("sqlite", "file:"+filepath.Join(d.folder, "lottery.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	fails := func(what string) {
		t.Helper()
		out.Reset()
		if err := d.check(t.Context()); !errors.Is(err, ErrFailed) || !strings.Contains(out.String(), "FAILED") {
			t.Errorf("%s: %v\n%s", what, err, &out)
		}
	}
	second := d.stale.Tick.UnixMilli()
	exec("UPDATE draws SET attempt = 1 WHERE tick = ?", second)
	exec("UPDATE noonlock_markers SET attempt = 1 WHERE tick = ?", second)
	fails("noon 2 at attempt 1")
	exec("UPDATE draws SET attempt = 2 WHERE tick = ?", second)
	exec("UPDATE noonlock_markers SET attempt = 2 WHERE tick = ?", second)
	if err := d.check(t.Context()); err != nil {
		t.Errorf("set right again: %v", err)
	}
	refusal := d.lateErr
	d.lateErr = nil
	fails("a late write that was taken")
	d.lateErr = refusal
	back := d.back
	d.back = time.Now()
	fails("a missed noon that was drawn before the replicas were back")
	d.back = back
	missed := d.noon(missedNoon).UnixMilli()
	for _, table := range []string{"draws", "winners", "noonlock_markers"} {
		exec("UPDATE "+table+" SET tick = ? WHERE tick = ?", missed+1, missed)
	}
	fails("a missed noon that was drawn under another name")
	for _, table := range []string{"draws", "winners", "noonlock_markers"} {
		exec("UPDATE "+table+" SET tick = ? WHERE tick = ?", missed, missed+1)
	}
	if err := d.check(t.Context()); err != nil {
		t.Errorf("set right again: %v", err)
	}
	exec("UPDATE winners SET entrant_id = 'id-01' WHERE position = 1 AND tick = ?", second)
	fails("a winner who is not eligible")
	exec("DELETE FROM winners WHERE position = 1 AND tick = ?", second)
	fails("nine winners")
	cut := d.cut
	d.cut = nil
	if err := d.check(t.Context()); !errors.Is(err, ErrFailed) {
		t.Errorf("no replica was cut off: %v", err)
	}
	d.cut, d.back = cut, time.Time{}
	if err := d.check(t.Context()); !errors.Is(err, ErrFailed) {
		t.Errorf("no replica was restarted: %v", err)
	}
}

// audience checks the output of the demo.
func audience(t *testing.T, text string) {
	t.Helper()
	for _, once := range []string{
		"NOON 1 of 5", "NOON 2 of 5", "NOON 3 of 5", "NOON 4 of 5", "NOON 5 of 5", "IS CUT OFF", "takes it over: attempt 2", "the database refuses",
		"ALL REPLICAS STOP", "noon 4 has passed", "are started again", "THE LEDGER IN REDIS", "  noon 4  ",
	} {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q is printed %d times, want once", once, n)
		}
	}
	if n := strings.Count(text, "\n  ok      "); n != 5 {
		t.Errorf("%d checks held, want 5", n)
	}
	if strings.ContainsRune(text, '\x1b') {
		t.Error("there are colours although this is no terminal")
	}
	last := 0
	claims := regexp.MustCompile(`(?:claims it: attempt 1|takes it over: attempt 2), token (\d+)`).FindAllStringSubmatch(text, -1)
	for _, claim := range claims {
		token, err := strconv.Atoi(claim[1])
		if err != nil || token <= last {
			t.Errorf("token %s after %d, %v; want a greater one", claim[1], last, err)
		}
		last = token
	}
	if len(claims) != 6 {
		t.Errorf("%d claims are printed, want 6", len(claims))
	}
	// Six draws of ten, one of which was rolled back.
	if n := len(regexp.MustCompile(`\bid-\d\d\b`).FindAllString(text, -1)); n != 60 {
		t.Errorf("%d ids are printed, want 60", n)
	}
	for line := range strings.Lines(text) {
		if len(line) > 100 {
			t.Errorf("%d characters in one line: %s", len(line), line)
		}
	}
}

func TestDemoWithTooFewEntrants(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Run(t.Context(), Config{Entrants: listOf(18), Out: &out}); !errors.Is(err, draw.ErrTooFew) {
		t.Errorf("with 9 eligible entrants for 10 winners: %v", err)
	}
}

func TestDemoBrokenOff(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	out := &interrupting{on: "The first noon", cancel: func() { cancel(interrupted) }}
	if err := Run(ctx, Config{Entrants: listOf(40), Out: out}); !errors.Is(err, interrupted) {
		t.Errorf("broken off: %v", err)
	}
}

// interrupting cancels when a text has been written.
type interrupting struct {
	on     string
	cancel func()
}

func (w *interrupting) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.on) {
		w.cancel()
	}
	return len(b), nil
}
