//go:build !nodemo

// Package demo demonstrates the lottery on a machine with nothing but Go: three replicas in one
// process, with a Redis in the same process and a SQLite file. At the second noon the drawing replica
// is cut off in the middle of its transaction. The fourth noon passes while no replica runs. At the
// end the demo checks the ledger and the database.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

const (
	every      = 3 * time.Second
	spec       = "@every 3s"
	noons      = 5
	cutNoon    = 2 // noon at which a replica is cut off
	lastNoon   = 3 // noon after which all replicas stop
	missedNoon = lastNoon + 1
	winners    = 10
	lease      = time.Second
	patience   = 40 * time.Second // the demo takes about half of that
)

// ErrFailed means that the demo did not run as it should, or that a check failed.
var ErrFailed = errors.New("the demo failed")

// demo is one run of the demo. mu also protects out and the fields after it.
type demo struct {
	folder   string // of the database
	database store.Address
	list     store.Entrants
	redis    *lockcoretest.Redis
	replicas []*replica

	mu    sync.Mutex
	out   io.Writer
	until int                // noon after which the replicas stop
	end   context.CancelFunc // stops the replicas
	first time.Time          // noon 1
	cut   *replica           // the one that was cut off
	stale singleton.Run

	lateErr error     // result of the late write
	back    time.Time // time of the restart
}

// Run runs the demo. It returns nil only if all checks passed.
func Run(ctx context.Context, list store.Entrants, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: it did not end within %s", ErrFailed, patience))
	defer cancel()
	d := &demo{list: list, out: out}
	defer d.close(ctx)
	if err := d.raise(ctx); err != nil {
		return err
	}
	if err := d.play(ctx); err != nil {
		return err
	}
	return d.check(ctx)
}

func (d *demo) raise(ctx context.Context) (err error) {
	if d.folder, err = os.MkdirTemp("", "lottery-"); err != nil {
		return err
	}
	if d.database, err = store.Parse("sqlite:"+filepath.Join(d.folder, "lottery.db"), "", certs.Client{}); err != nil {
		return err
	}
	if d.redis, err = lockcoretest.StartRedis(); err != nil {
		return err
	}
	if err := d.cast(ctx); err != nil {
		return err
	}
	d.print(`
The noon lottery: three replicas run the same code, and each noon is drawn once.

  replicas  A, B and C, in this process, each with its own connections
  Redis     miniredis, in this process
  database  %s
  entrants  %d from the bundled list, %d of them eligible
  noons     %d, one every %s, %d winners each
`, d.database, len(d.list), len(d.list.Eligible()), noons, every, winners)
	return nil
}

func (d *demo) close(ctx context.Context) {
	for _, r := range d.replicas {
		r.close(ctx)
	}
	if d.redis != nil {
		d.redis.Close()
	}
	_ = os.RemoveAll(d.folder) // a temporary directory
}

// cast replaces the replicas by new ones, which share no state with the earlier ones.
func (d *demo) cast(ctx context.Context) error {
	for _, r := range d.replicas {
		r.close(ctx)
	}
	d.replicas = nil
	for _, name := range []string{"A", "B", "C"} {
		if err := d.newReplica(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) play(ctx context.Context) error {
	if err := d.act(ctx, lastNoon); err != nil {
		return err
	}
	missed := d.noon(missedNoon)
	d.print("\nALL REPLICAS STOP\n")
	d.line("-", fmt.Sprintf("%s was cut off, and now the others stop too. Noon %d is at %s.", d.cut.name, missedNoon, missed.Local().Format(time.TimeOnly)))
	select {
	case <-time.After(time.Until(missed.Add(every / 6))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	d.line("-", fmt.Sprintf("noon %d has passed while no replica was running", missedNoon))
	if err := d.cast(ctx); err != nil {
		return err
	}
	d.back = time.Now()
	d.line("-", "A, B and C are started again")
	return d.act(ctx, noons)
}

// act runs the replicas until the given noon was drawn and all have stopped.
func (d *demo) act(ctx context.Context, until int) error {
	running, end := context.WithCancel(ctx)
	defer end()
	d.until, d.end = until, end
	var wg sync.WaitGroup
	for _, r := range d.replicas {
		wg.Go(func() { r.run(running) })
	}
	wg.Wait() // a replica that is drawing finishes and records its draw
	return context.Cause(ctx)
}

// noon returns the instant of a noon. It is valid after the first noon.
func (d *demo) noon(number int) time.Time { return d.first.Add(time.Duration(number-1) * every) }

// number returns the number of a noon. The first claimed noon is 1.
func (d *demo) number(tick time.Time) int {
	if d.first.IsZero() {
		d.first = tick
	}
	return int(tick.Sub(d.first)/every) + 1
}

func (d *demo) claimed(r *replica, run singleton.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how := "takes it over"
	if run.Attempt == 1 {
		how = "claims it"
		d.print("\nNOON %d of %d, at %s\n", d.number(run.Tick), noons, run.Tick.Local().Format(time.TimeOnly))
	}
	d.line(r.name, fmt.Sprintf("%s: attempt %d, token %d", how, run.Attempt, run.Token))
}

// written is called after the winners are written in the transaction. It cuts one replica off, at
// one noon. A process that dies here has the same effect: the system closes its connections, and
// the database rolls the transaction back.
func (d *demo) written(r *replica, run singleton.Run, ids []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := []string{fmt.Sprintf("writes %d winners in a transaction:", len(ids))}
	for part := range slices.Chunk(ids, 5) {
		lines = append(lines, strings.Join(part, " "))
	}
	d.line(r.name, lines...)
	if d.number(run.Tick) != cutNoon || d.cut != nil {
		return nil
	}
	d.cut, d.stale = r, run
	d.line(r.name, fmt.Sprintf("IS CUT OFF before it can commit: all %d connections to Redis severed,", r.sever()),
		"nothing is released; the database rolls back, as after a crash.",
		fmt.Sprintf("The others wait until its lease of %s has expired.", lease))
	return errors.New("cut off")
}

func (d *demo) committed(ctx context.Context, r *replica, run singleton.Run) {
	d.mu.Lock()
	d.line(r.name, fmt.Sprintf("commits: drawn %s after noon", time.Since(run.Tick).Round(time.Millisecond)))
	number := d.number(run.Tick)
	if number >= d.until {
		d.end() // before the run ends, so that no replica claims the next noon
	}
	d.mu.Unlock()
	if number == cutNoon {
		d.writeLate(ctx)
	}
}

// writeLate lets the replica that was cut off write its draw again, like a process that was frozen
// and then continues.
func (d *demo) writeLate(ctx context.Context) {
	d.lateErr = d.cut.drawing.Draw(ctx, d.stale)
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := fmt.Sprintf("the database answers: %v", d.lateErr)
	if stale, ok := errors.AsType[*sqlonce.StaleTokenError](d.lateErr); ok {
		answer = fmt.Sprintf("the database refuses: it has seen token %d", stale.Seen)
	}
	d.line(d.cut.name, fmt.Sprintf("continues and writes its draw again, with token %d;", d.stale.Token), answer)
}

func (d *demo) check(ctx context.Context) error {
	r, until := d.replicas[0], d.noon(noons+1)
	due, err := schedule.Parse(spec, schedule.Config{Name: noon.Job})
	if err != nil {
		return err
	}
	seen, verifyErr := noon.Verify(ctx, r.client, r.drawing.Store, due, winners, d.first, until)
	draws, err := r.drawing.Store.Draws(ctx, noon.Job, d.first, until)
	if err := errors.Join(verifyErr, err); err != nil {
		return err
	}
	if len(draws) != noons { // one for each noon, in their order
		return fmt.Errorf("%w: %d noons were drawn, and not %d", ErrFailed, len(draws), noons)
	}
	d.print("\nCHECKING THE LEDGER IN REDIS AND THE DATABASE\n")
	mark, passed := map[bool]string{true: "ok    ", false: "FAILED"}, true
	judge := func(ok bool, format string, args ...any) {
		passed = passed && ok
		d.print("  %s  %s\n", mark[ok], fmt.Sprintf(format, args...))
	}
	taken, missed := draws[cutNoon-1], draws[missedNoon-1]
	judge(seen.Draws == noons && len(seen.Findings) == 0, "%d noons, %d draws of %d different winners each", seen.Noons, seen.Draws, winners)
	judge(seen.Recorded == noons, "the ledger in Redis has the same %d draws, none twice, none missing", seen.Recorded)
	judge(taken.Attempt == 2 && taken.Token > d.stale.Token && taken.DrawnBy != d.cut.name,
		"noon %d: started by %s, drawn by %s at attempt %d with a higher token", cutNoon, d.cut.name, taken.DrawnBy, taken.Attempt)
	judge(errors.Is(d.lateErr, sqlonce.ErrStaleToken), "noon %d: the late write of %s was refused", cutNoon, d.cut.name)
	judge(missed.Attempt == 1 && !missed.DrawnAt.Before(d.back.Truncate(time.Millisecond)), "noon %d: missed by all, drawn once by %s after the restart, under its own time", missedNoon, missed.DrawnBy)
	for _, f := range seen.Findings {
		judge(false, "%s: %s: %s", f.Tick.Format(time.RFC3339Nano), f.Kind, f.Detail)
	}
	if !passed {
		return fmt.Errorf("%w: a check failed", ErrFailed)
	}
	d.print("\nAll checks passed. With a Redis and a database of your own: go run ./examples/lottery serve --help\n\n")
	return nil
}

func (d *demo) print(format string, args ...any) {
	fmt.Fprintf(d.out, format, args...) // the demo continues without output
}

func (d *demo) line(who string, what ...string) {
	d.print("%s %s  %s\n", time.Now().Format("15:04:05.000"), who, strings.Join(what, "\n                "))
}
