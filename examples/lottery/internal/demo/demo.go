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
	"sync"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
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

var errPatience = fmt.Errorf("%w: it did not end within %s", ErrFailed, patience)

// Run runs the demo. It returns nil only if all checks passed.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	d, err := raise(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	if err := d.play(ctx); err != nil {
		return err
	}
	return d.check(ctx)
}

// demo is one run of the demo. mu of its stage also protects the fields from until on.
type demo struct {
	*stage
	redis    *lockcoretest.Redis
	replicas []*replica
	late     sync.WaitGroup // tracks the late write

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
func raise(ctx context.Context, cfg Config) (*demo, error) {
	s, err := setUp(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d := &demo{stage: s, begun: map[time.Time]bool{}}
	if d.redis, err = lockcoretest.StartRedis(); err == nil {
		err = d.cast(ctx)
	}
	if err != nil {
		d.close(ctx)
		return nil, err
	}
	d.introduce("The noon lottery: three replicas run the same code, and each noon is drawn once.",
		[2]string{"replicas", "A, B and C, in this process, each with its own connections"},
		[2]string{"Redis", "miniredis, in this process"},
		[2]string{"database", d.dsn.String()},
		[2]string{"entrants", fmt.Sprintf("%d from the bundled list, %d of them eligible", d.totals.Entrants, d.totals.Eligible)},
		[2]string{"noons", fmt.Sprintf("%d, one every %s, %d winners each", noons, every, winners)})
	d.print(fmt.Sprintf("\nThe first noon is at %s.\n", d.schedule.Next(time.Now()).Local().Format(time.TimeOnly)))
	return d, nil
}

func (d *demo) close(ctx context.Context) {
	for _, r := range d.replicas {
		r.close(ctx)
	}
	if d.redis != nil {
		d.redis.Close()
	}
	d.tearDown()
}

// cast replaces the replicas by new ones. The replicas share no state with each other or
// with earlier ones.
func (d *demo) cast(ctx context.Context) error {
	for _, r := range d.replicas {
		r.close(ctx)
	}
	d.replicas = nil
	for _, name := range []string{"A", "B", "C"} {
		r, err := d.newReplica(ctx, name)
		if err != nil {
			return err
		}
		d.replicas = append(d.replicas, r)
	}
	return nil
}

// play runs the demo: the replicas draw, stop, miss a noon, and restart.
func (d *demo) play(ctx context.Context) error {
	if err := d.act(ctx, lastNoon); err != nil {
		return err
	}
	if d.cut == nil {
		return fmt.Errorf("%w: no replica was cut off", ErrFailed)
	}
	missed := d.noon(missedNoon)
	d.heading("ALL REPLICAS STOP")
	d.line("-", fmt.Sprintf("%s was cut off, and now the others stop too. Noon %d is at %s.", d.cut.name, missedNoon, missed.Local().Format(time.TimeOnly)))
	timer := time.NewTimer(time.Until(missed.Add(every / 6)))
	defer timer.Stop()
	select {
	case <-timer.C:
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
	d.late.Wait()
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
	if !d.begun[run.Tick] {
		d.begun[run.Tick] = true
		d.noonHeading(d.number(run.Tick), noons, run.Tick)
	}
	if run.Attempt == 1 {
		d.line(r.name, fmt.Sprintf("claims it: attempt 1, token %d", run.Token))
		return
	}
	d.line(r.name, d.strong(fmt.Sprintf("takes it over: attempt %d, token %d", run.Attempt, run.Token)))
}

// written is called after the winners are written in the transaction. It cuts one replica off, at
// one noon. A process that dies here has the same effect: the system closes its connections, and
// the database rolls the transaction back.
func (d *demo) written(r *replica, run singleton.Run, ids []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes(r.name, ids)
	if d.number(run.Tick) != cutNoon || d.cut != nil {
		return nil
	}
	d.cut, d.stale = r, run
	d.line(r.name, d.alarm("IS CUT OFF before it can commit")+fmt.Sprintf(": all %d connections to Redis severed,", r.sever()),
		"nothing is released; the database rolls back, as after a crash.",
		fmt.Sprintf("The others wait until its lease of %s has expired.", lease))
	return errCutOff
}

func (d *demo) committed(ctx context.Context, r *replica, run singleton.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, fmt.Sprintf("commits: drawn %s after noon", time.Since(run.Tick).Round(time.Millisecond)))
	number := d.number(run.Tick)
	if number == cutNoon && d.cut != nil {
		ctx := context.WithoutCancel(ctx) // ctx ends with the run
		d.late.Go(func() { d.writeLate(ctx, d.cut, d.stale) })
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
func (d *demo) writeLate(ctx context.Context, r *replica, run singleton.Run) {
	err := r.drawing.Draw(ctx, run)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lateErr = err
	answer := d.alarm("the database accepts it, which is wrong")
	if stale, ok := errors.AsType[*sqlonce.StaleTokenError](err); ok {
		answer = fmt.Sprintf("the database refuses: it has seen token %d", stale.Seen)
	} else if err != nil {
		answer = "the database refuses: " + err.Error()
	}
	d.line(r.name, fmt.Sprintf("continues and writes its draw again, with token %d;", run.Token), answer)
}
