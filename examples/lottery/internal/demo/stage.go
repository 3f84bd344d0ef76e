package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// stage has the database of a demo, and prints. One goroutine at a time prints, with mu, so that
// related lines stay together.
type stage struct {
	folder   string
	schedule schedule.Schedule
	dsn      store.DSN
	store    *store.Store // of the checks
	totals   entrants.Totals

	mu      sync.Mutex
	out     io.Writer
	colours bool
}

// setUp creates the database and loads the entrants.
func setUp(ctx context.Context, cfg Config) (_ *stage, err error) {
	s := &stage{out: cfg.Out, colours: cfg.Colours}
	if s.folder, err = os.MkdirTemp("", "lottery-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.tearDown()
		}
	}()
	if s.schedule, err = schedule.Every(every); err != nil {
		return nil, err
	}
	if s.dsn, err = store.ParseDSN("sqlite:" + filepath.Join(s.folder, "lottery.db")); err != nil {
		return nil, err
	}
	if s.store, err = store.Open(ctx, s.dsn, noon.StoreConfig(lease)); err != nil {
		return nil, err
	}
	if s.totals, err = s.store.LoadEntrants(ctx, cfg.Entrants); err != nil {
		return nil, err
	}
	if s.totals.Eligible < winners {
		return nil, &draw.TooFewError{Entrants: s.totals.Eligible, Winners: winners}
	}
	return s, nil
}

func (s *stage) tearDown() {
	if s.store != nil {
		s.store.Close()
	}
	_ = os.RemoveAll(s.folder) // a temporary directory
}

// release releases all leases of a client if Redis can be reached, even if ctx has ended.
func release(ctx context.Context, client *lockcore.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	_ = client.Close(ctx) // what cannot be released will expire
}

const (
	indent  = "                " // below the text of a line
	columns = 5
)

func (s *stage) print(text string) {
	_, _ = io.WriteString(s.out, text) // the demo continues without output
}

// introduce prints a title, and a table of names and texts.
func (s *stage) introduce(title string, rows ...[2]string) {
	s.print("\n" + s.strong(title) + "\n\n")
	for _, row := range rows {
		s.print(fmt.Sprintf("  %-9s %s\n", row[0], row[1]))
	}
}

func (s *stage) heading(text string) { s.print("\n" + s.strong(text) + "\n") }

func (s *stage) noonHeading(number, of int, tick time.Time) {
	s.heading(fmt.Sprintf("NOON %d of %d, at %s", number, of, tick.Local().Format(time.TimeOnly)))
}

// line prints an action of a replica with the current time.
func (s *stage) line(who string, what ...string) {
	s.print(fmt.Sprintf("%s %s  %s\n", time.Now().Format("15:04:05.000"), who, strings.Join(what, "\n"+indent)))
}

// writes prints the winners that a replica writes, in columns.
func (s *stage) writes(who string, ids []string) {
	s.line(who, fmt.Sprintf("writes %d winners in a transaction:", len(ids)))
	for len(ids) > 0 {
		n := min(columns, len(ids))
		s.print(indent + strings.Join(ids[:n], " ") + "\n")
		ids = ids[n:]
	}
}

// verdicts prints checks.
type verdicts struct {
	*stage
	failed bool // one of them
}

func (v *verdicts) check(ok bool, format string, args ...any) {
	mark := v.paint("32", "ok    ")
	if !ok {
		v.failed = true
		mark = v.alarm("FAILED")
	}
	v.print("  " + mark + "  " + fmt.Sprintf(format, args...) + "\n")
}

// end prints that all checks passed, or returns an error.
func (v *verdicts) end(next string) error {
	if v.failed {
		return fmt.Errorf("%w: a check failed", ErrFailed)
	}
	v.print("\nAll checks passed. With " + next + " of your own: go run ./examples/lottery serve --help\n\n")
	return nil
}

func (s *stage) strong(text string) string { return s.paint("1", text) }
func (s *stage) alarm(text string) string  { return s.paint("1;31", text) }

func (s *stage) paint(code, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
