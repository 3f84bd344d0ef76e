// Package demo demonstrates the lottery on a machine with nothing but Go: three replicas in
// one process, with a Redis in the same process and a SQLite file. At the second noon the
// drawing replica is cut off in the middle of its transaction. The fourth noon passes while
// no replica runs. At the end the demo checks the ledger and the database.
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
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// Config configures Run.
type Config struct {
	Entrants entrants.List
	Out      io.Writer
	Colours  bool
}

const (
	every      = 3 * time.Second
	noons      = 5
	cutNoon    = 2 // noon at which a replica is cut off
	lastNoon   = 3 // noon after which all replicas stop
	missedNoon = lastNoon + 1
	winners    = 10
	lease      = time.Second

	// patience limits the demo, which takes about half of that.
	patience = 40 * time.Second
)

// ErrFailed means that the demo did not run as it should, or that a check failed.
var ErrFailed = errors.New("the demo failed")

// Run runs the demo. It returns nil only if all checks passed.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: it did not end within %s", ErrFailed, patience))
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

// demo is one run of the demo.
type demo struct {
	stage
	folder   string
	redis    *miniredis.Miniredis
	schedule schedule.Schedule
	dsn      store.DSN
	replicas []*replica
	late     sync.WaitGroup // tracks the late write

	mu    sync.Mutex
	until int                // noon after which the replicas stop
	end   context.CancelFunc // stops the replicas
	first time.Time          // noon 1
	begun map[time.Time]bool
	cut   *replica // the one that was cut off
	stale singleton.Run

	lateErr error     // result of the late write
	back    time.Time // time of the restart
}

// raise prepares the demo and prints the introduction.
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
	d.redis.ClockTTL(true) // keys expire in real time
	if err := d.redis.Start(); err != nil {
		return nil, err
	}
	if d.schedule, err = schedule.Every(every); err != nil {
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
	_ = os.RemoveAll(d.folder) // a temporary directory
}

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

// written is called after the winners are written in the transaction. It returns true once,
// for the replica that is to be cut off.
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
		"nothing is released; the database rolls back, as after a crash.",
		fmt.Sprintf("The others wait until its lease of %s has expired.", lease))
}

func (d *demo) committed(ctx context.Context, r *replica, run singleton.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, fmt.Sprintf("commits: drawn %s after noon", time.Since(run.Tick).Round(time.Millisecond)))
	number := d.number(run.Tick)
	if number == cutNoon && d.cut != nil {
		ctx := context.WithoutCancel(ctx) // ctx ends with the run
		d.late.Go(func() { d.writeLate(ctx) })
	}
	if number >= d.until {
		d.end() // before the run ends, so that no replica claims the next noon
	}
}

func (d *demo) failed(r *replica, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !errors.Is(err, errCutOff) {
		d.line(r.name, d.alarm("fails")+": "+err.Error())
	}
}

// writeLate lets the replica that was cut off write its draw again, like a process that was
// frozen and then continues.
func (d *demo) writeLate(ctx context.Context) {
	d.mu.Lock()
	r, run := d.cut, d.stale
	d.mu.Unlock()
	err := r.drawing.Draw(ctx, run)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lateErr = err
	answer := d.alarm("the database accepts it, which is wrong")
	if err != nil {
		answer = "the database refuses: " + brief(err)
	}
	d.line(r.name, fmt.Sprintf("continues and writes its draw again, with token %d;", run.Token), answer)
}

func (d *demo) introduce(totals entrants.Totals) {
	d.print("\n" + d.strong("The noon lottery: three replicas run the same code, and each noon is drawn once.") + "\n\n")
	for _, row := range [][2]string{
		{"replicas", "A, B and C, in this process, each with its own connections"},
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
