//go:build !nodemo

// Package demo demonstrates the lottery on a machine with nothing but Go: three replicas in one
// process, with a Redis in the same process and a SQLite file. A noon is every 3 s. At the second noon
// the drawing replica is cut off in the middle of its transaction. The fourth noon passes while no
// replica runs. At the end the demo checks the ledger and the database.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/console/login"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

const (
	every      = 3 * time.Second // time between two noons
	spec       = "@every 3s"     // schedule of these noons
	noons      = 5
	cutNoon    = 2 // noon at which a replica is cut off
	lastNoon   = 3 // noon after which all replicas stop
	missedNoon = lastNoon + 1
	winners    = 10
	lease      = time.Second
	drain      = time.Second // how long a draw may continue when the replicas stop
)

type demo struct {
	folder   string // has the database
	database store.Address
	list     noon.Entrants
	redis    *lockcoretest.Redis
	replicas []*replica

	mu      sync.Mutex // guards the fields below while replicas run
	out     io.Writer
	until   int                // noon after which the replicas stop
	end     context.CancelFunc // stops the replicas
	first   time.Time          // noon 1
	cut     *replica           // replica that was cut off
	stale   singleton.Run      // its run
	lateErr error              // result of its late write
	restart time.Time
}

// A replica shares only the addresses of Redis and the database with the other replicas.
type replica struct {
	name    string
	faults  *lockcoretest.Faults // of the network to Redis
	client  *lockcore.Client
	drawing noon.Drawing
}

// Run runs the demo. It returns nil only if all checks passed.
func Run(ctx context.Context, list noon.Entrants, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 40*time.Second, errors.New("the demo did not end within 40s"))
	defer cancel()
	server, err := lockcoretest.StartRedis()
	if err != nil {
		return err
	}
	defer server.Close()
	d := &demo{list: list, redis: server, out: out}
	defer d.close(ctx)
	if err := d.play(ctx); err != nil {
		return err
	}
	return d.check(ctx)
}

// play runs the replicas twice: for the first three noons, and for the rest after a missed noon.
func (d *demo) play(ctx context.Context) (err error) {
	if d.folder, err = os.MkdirTemp("", "lottery-"); err != nil {
		return err
	}
	if d.database, err = store.Parse("sqlite:"+filepath.Join(d.folder, "lottery.db"), "", login.Files{}); err != nil {
		return err
	}
	fmt.Fprintf(d.out, `
The noon lottery: three replicas run the same code, and each noon is drawn once.

  replicas  A, B and C, in this process, each with its own connections
  Redis     miniredis, in this process
  database  %s
  entrants  %d from the bundled list, %d of them eligible
  noons     %d, one every %s, %d winners each
`, d.database, len(d.list), len(d.list.Eligible()), noons, every, winners)
	if err := d.act(ctx, lastNoon); err != nil {
		return err
	}
	missed := d.noon(missedNoon)
	fmt.Fprintln(d.out, "\nALL REPLICAS STOP")
	d.line("-", fmt.Sprintf("%s was cut off, and now the others stop too. Noon %d is at %s.", d.cut.name, missedNoon, missed.Local().Format(time.TimeOnly)))
	time.Sleep(time.Until(missed.Add(every / 6)))
	d.restart = time.Now()
	d.line("-", fmt.Sprintf("noon %d has passed while no replica was running; A, B and C are started again", missedNoon))
	return d.act(ctx, noons)
}

func (d *demo) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	for _, r := range d.replicas {
		_ = r.client.Close(ctx) // what cannot be released will expire
		r.drawing.Store.Close()
	}
	_ = os.RemoveAll(d.folder) // a temporary directory
}

// act runs three new replicas until the given noon was drawn and all have stopped.
func (d *demo) act(ctx context.Context, until int) error {
	var wg sync.WaitGroup
	defer wg.Wait() // the last deferred call: a replica that is drawing finishes and records its draw
	running, end := context.WithCancel(ctx)
	defer end()
	d.until, d.end = until, end
	for _, name := range []string{"A", "B", "C"} {
		r := &replica{name: name, faults: lockcoretest.NewFaults()}
		rdb := redis.NewClient(d.redis.OptionsVia(r.faults)) // has the options; lockcore opens the connections
		defer rdb.Close()
		client, err := lockcore.New(rdb, lockcore.Config{Identity: name})
		if err != nil {
			return err
		}
		st, err := store.Open(ctx, d.database, lease)
		if err != nil {
			return err
		}
		r.client, r.drawing = client, noon.Drawing{Store: st, Entrants: d.list, Winners: winners, Written: func(run singleton.Run, ids []string) error { return d.written(r, run, ids) }}
		d.replicas = append(d.replicas, r)
		runner, err := noon.NewRunner(client, lease, drain, spec, time.UTC, func(ctx context.Context, run singleton.Run) error { return d.draw(ctx, r, run) })
		if err != nil {
			return err
		}
		wg.Go(func() { _ = runner.Run(running) }) // fails only if the Runner runs already
	}
	<-running.Done()
	return context.Cause(ctx)
}

// noon returns the instant of a noon. It is valid after the first noon.
func (d *demo) noon(number int) time.Time { return d.first.Add(time.Duration(number-1) * every) }

func (d *demo) draw(ctx context.Context, r *replica, run singleton.Run) error {
	d.mu.Lock()
	if d.first.IsZero() {
		d.first = run.Tick
	}
	how, number := "takes it over", int(run.Tick.Sub(d.first)/every)+1
	if run.Attempt == 1 {
		how = "claims it"
		fmt.Fprintf(d.out, "\nNOON %d of %d, at %s\n", number, noons, run.Tick.Local().Format(time.TimeOnly))
	}
	d.line(r.name, fmt.Sprintf("%s: attempt %d, token %d", how, run.Attempt, run.Token))
	d.mu.Unlock()
	if err := r.drawing.Draw(ctx, run); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, fmt.Sprintf("commits: drawn %s after noon", time.Since(run.Tick).Round(time.Millisecond)))
	if number >= d.until {
		d.end() // before the run ends, so that no replica claims the next noon
	}
	if number == cutNoon { // after this commit, the replica that was cut off writes again, as a frozen process would
		lateDrawing := noon.Drawing{Store: d.cut.drawing.Store, Entrants: d.list, Winners: winners}
		d.lateErr = lateDrawing.Draw(ctx, d.stale)
		d.line(d.cut.name, fmt.Sprintf("continues and writes its draw again, with token %d;", d.stale.Token), fmt.Sprintf("the database answers: %v", d.lateErr))
	}
	return nil
}

// written is called after the winners are written in the transaction. It cuts one replica off, at
// one noon. A process that dies here has the same effect: the system closes its connections, and
// the database rolls the transaction back.
func (d *demo) written(r *replica, run singleton.Run, ids []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(r.name, fmt.Sprintf("writes %d winners in a transaction:", len(ids)), strings.Join(ids[:winners/2], " "), strings.Join(ids[winners/2:], " "))
	if !run.Tick.Equal(d.noon(cutNoon)) || d.cut != nil {
		return nil
	}
	d.cut, d.stale = r, run
	_, _ = r.faults.Add(lockcoretest.Fault{Kind: lockcoretest.RefuseDial}) // fails only for an invalid fault
	d.line(r.name, fmt.Sprintf("IS CUT OFF before it can commit: all %d connections to Redis severed,", r.faults.Cut()),
		"nothing is released; the database rolls back, as after a crash.",
		fmt.Sprintf("The others wait until its lease of %s has expired.", lease))
	return errors.New("cut off")
}

func (d *demo) check(ctx context.Context) error {
	r := d.replicas[len(d.replicas)-1]
	seen, err := noon.Verify(ctx, r.client, r.drawing.Store, spec, time.UTC, winners, d.first, d.noon(noons+1))
	if err != nil {
		return err
	}
	if len(seen.Draws) != noons {
		return fmt.Errorf("the demo failed: %d noons were drawn, and not %d", len(seen.Draws), noons)
	}
	fmt.Fprintln(d.out, "\nCHECKING THE LEDGER IN REDIS AND THE DATABASE")
	mark, passed := map[bool]string{true: "ok    ", false: "FAILED"}, true
	judge := func(ok bool, format string, args ...any) {
		passed = passed && ok
		fmt.Fprintf(d.out, "  %s  %s\n", mark[ok], fmt.Sprintf(format, args...))
	}
	taken, missed := seen.Draws[cutNoon-1], seen.Draws[missedNoon-1] // Draws has one for each noon, in their order
	judge(len(seen.Findings) == 0, "%d noons, %d draws of %d different winners each", seen.Noons, len(seen.Draws), winners)
	judge(seen.Recorded == noons, "the ledger in Redis has the same %d draws, none twice, none missing", seen.Recorded)
	judge(taken.Attempt == 2 && taken.Token > d.stale.Token && taken.DrawnBy != d.cut.name,
		"noon %d: started by %s, drawn by %s at attempt %d with a higher token", cutNoon, d.cut.name, taken.DrawnBy, taken.Attempt)
	judge(errors.Is(d.lateErr, sqlonce.ErrStaleToken), "noon %d: the late write of %s was refused", cutNoon, d.cut.name)
	judge(missed.Attempt == 1 && !missed.DrawnAt.Before(d.restart.Truncate(time.Millisecond)), "noon %d: missed by all, drawn once by %s after the restart, under its own time", missedNoon, missed.DrawnBy)
	if !passed {
		return errors.New("the demo failed: a check failed")
	}
	fmt.Fprint(d.out, "\nAll checks passed. With a Redis and a database of your own: go run ./examples/lottery serve --help\n\n")
	return nil
}

// line prints a text of several lines about a replica.
func (d *demo) line(who string, what ...string) {
	fmt.Fprintf(d.out, "%s %s  %s\n", time.Now().Format("15:04:05.000"), who, strings.Join(what, "\n                "))
}
