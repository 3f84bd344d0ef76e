// Package demo shows the lottery at work to somebody who has nothing but Go:
// three replicas in one process, on a Redis in the same process and a SQLite
// file. At the second noon the replica that draws is cut off in the middle of
// its transaction; the fourth one passes while there is no replica at all. It
// ends by checking the ledger and the database.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// Config is what Run needs.
type Config struct {
	Entrants entrants.List
	Out      io.Writer
	Colours  bool
}

const (
	every      = 3 * time.Second
	noons      = 5
	cutNoon    = 2 // at which a replica is cut off
	lastNoon   = 3 // after which all replicas end
	missedNoon = lastNoon + 1
	winners    = 10
	lease      = time.Second

	// patience is when the demo gives up. It takes about half of that.
	patience = 40 * time.Second
)

// ErrFailed says that the demo did not show what it should have.
var ErrFailed = errors.New("the demo failed")

// Run is the whole demo. It returns nil only if everything held that it claims.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: it was not over after %s", ErrFailed, patience))
	defer cancel()
	d, err := raise(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	if err := d.play(ctx, cfg.Entrants); err != nil {
		return err
	}
	return d.check(ctx)
}

// demo is one performance.
type demo struct {
	stage
	folder   string
	redis    *miniredis.Miniredis
	schedule singleton.Schedule
	dsn      store.DSN
	replicas []*replica
	late     sync.WaitGroup // of the write that comes late

	mu    sync.Mutex
	until int                // the noon after which the replicas end
	end   context.CancelFunc // ends them
	first time.Time          // noon 1
	begun map[time.Time]bool
	cut   *replica // the one that was cut off
	stale singleton.Run

	lateErr error     // what its late write was told
	back    time.Time // when the replicas came back
}

// raise makes everything ready and introduces it.
func raise(ctx context.Context, cfg Config) (_ *demo, err error) {
	d := &demo{
		stage: stage{out: cfg.Out, colours: cfg.Colours}, redis: miniredis.NewMiniRedis(), begun: map[time.Time]bool{},
	}
	defer func() {
		if err != nil {
			d.close(ctx)
		}
	}()
	if d.folder, err = os.MkdirTemp("", "lottery-"); err != nil {
		return nil, err
	}
	d.redis.ClockTTL(true) // keys expire as time goes by
	if err := d.redis.Start(); err != nil {
		return nil, err
	}
	if d.schedule, err = singleton.Every(every); err != nil {
		return nil, err
	}
	if d.dsn, err = store.ParseDSN("sqlite:" + filepath.Join(d.folder, "lottery.db")); err != nil {
		return nil, err
	}
	totals, err := d.cast(ctx, cfg.Entrants)
	if err != nil {
		return nil, err
	}
	if totals.Eligible < winners {
		return nil, &draw.TooFewError{Entrants: totals.Eligible, Winners: winners}
	}
	d.introduce(totals)
	return d, nil
}

func (d *demo) close(ctx context.Context) {
	for _, r := range d.replicas {
		r.close(ctx)
	}
	d.redis.Close()
	_ = os.RemoveAll(d.folder) // a temporary one
}

// number is 1 for the first noon that anybody claimed, and so on.
func (d *demo) number(tick time.Time) int {
	if d.first.IsZero() {
		d.first = tick
	}
	return int(tick.Sub(d.first)/every) + 1
}

func (d *demo) claimed(r *replica, run singleton.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	number := d.number(run.Tick)
	if !d.begun[run.Tick] {
		d.begun[run.Tick] = true
		d.heading(fmt.Sprintf("NOON %d of %d, at %s", number, noons, run.Tick.Local().Format(time.TimeOnly)))
	}
	if run.Attempt == 1 {
		d.line(r.name, fmt.Sprintf("claims it: attempt 1, token %d", run.Token))
		return
	}
	d.line(r.name, d.strong(fmt.Sprintf("takes it over: attempt %d, token %d", run.Attempt, run.Token)))
}

// written is called when the winners stand in the transaction. At one noon it is
// then over with whoever draws: cutting is true, once.
func (d *demo) written(r *replica, run singleton.Run, ids []string) (cutting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, fmt.Sprintf("writes %d winners in a transaction:", len(ids)))
	d.table(ids)
	if d.number(run.Tick) != cutNoon || d.cut != nil {
		return false
	}
	d.cut, d.stale = r, run
	return true
}

func (d *demo) severed(r *replica, connections int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, d.alarm("IS CUT OFF before it can commit")+fmt.Sprintf(": all %d connections to Redis severed,", connections),
		"no release, no goodbye; the database rolls back, as after a crash.",
		fmt.Sprintf("The others wait until its claim has gone %s without a renewal.", lease))
}

func (d *demo) committed(ctx context.Context, r *replica, run singleton.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, fmt.Sprintf("commits: drawn %s after noon", time.Since(run.Tick).Round(time.Millisecond)))
	number := d.number(run.Tick)
	if number == cutNoon && d.cut != nil {
		ctx := context.WithoutCancel(ctx) // which ends with the run
		d.late.Go(func() { d.writeLate(ctx) })
	}
	if number >= d.until {
		d.end() // before the run is over, so that nobody claims the next noon
	}
}

func (d *demo) failed(r *replica, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !errors.Is(err, errCutOff) {
		d.line(r.name, d.alarm("fails")+": "+err.Error())
	}
}

// writeLate lets the replica that was cut off write its draw after all, as one
// does that was frozen and does not know what it has missed.
func (d *demo) writeLate(ctx context.Context) {
	d.mu.Lock()
	r, run := d.cut, d.stale
	d.mu.Unlock()
	err := r.drawing.Draw(ctx, run)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lateErr = err
	answer := d.alarm("the database takes it, which must not be")
	if err != nil {
		answer = "the database refuses: " + brief(err)
	}
	d.line(r.name, fmt.Sprintf("knows nothing of this and writes its draw again, with token %d;", run.Token), answer)
}

func (d *demo) introduce(totals entrants.Totals) {
	d.print("\n" + d.strong("The noon lottery: three replicas run the same code, each noon is drawn once.") + "\n\n")
	for _, row := range [][2]string{
		{"replicas", "A, B and C, in this process, with connections of their own"},
		{"Redis", "miniredis, in this process, at " + d.redis.Addr()},
		{"database", d.dsn.String()},
		{"entrants", fmt.Sprintf("%d from the bundled list, %d of them eligible", totals.Entrants, totals.Eligible)},
		{"noons", fmt.Sprintf("%d, one every %s, %d winners each", noons, every, winners)},
	} {
		d.print(fmt.Sprintf("  %-9s %s\n", row[0], row[1]))
	}
	next := d.schedule.Next(time.Now())
	d.print(fmt.Sprintf("\nThe first noon is at %s.\n", next.Local().Format(time.TimeOnly)))
}

// expected is what the database should hold in the end.
func (d *demo) expected() store.Expected {
	want := store.Expected{Job: noon.Job, Since: d.first, Until: d.noon(noons + 1), Winners: winners}
	for n := range noons {
		want.Ticks = append(want.Ticks, d.noon(n+1))
	}
	return want
}
