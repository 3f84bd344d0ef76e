package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// stamp is the layout of a noon in the output.
const stamp = "2006-01-02 15:04:05.999 -07:00"

// verify compares the ledger in Redis with the schedule, as noonctl verify does, and the draws in the
// database with the ledger. It changes neither.
func verify(ctx context.Context, s settings, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	options, redisErr := s.redisOptions()
	at, databaseErr := s.databaseAddress()
	from, to, err := s.span()
	if err := errors.Join(redisErr, databaseErr, err); err != nil {
		return coded{err, refused}
	}
	seen, draws, err := compare(ctx, options, at, s.winners, from, to)
	if err != nil && !errors.Is(err, singleton.ErrNothingKept) {
		return coded{err, unseen}
	}
	if seen.Ticks == len(seen.Pending) && len(seen.Findings) == 0 && len(seen.Unknown) == 0 {
		if s.nothingPasses {
			fmt.Fprintln(stdout, "there is no noon to verify")
			return nil
		}
		return coded{errors.New("there is no noon to verify"), unseen}
	}
	show := func(t time.Time) string { return t.In(s.location).Format(stamp) }
	fmt.Fprintf(stdout, "from %s to before %s: %d noons, %d of them succeeded in the ledger, %d draws in %s\n",
		show(seen.Since), show(seen.Until), seen.Ticks-len(seen.Pending), seen.Succeeded, draws, at)
	if n := len(seen.Pending); n > 0 {
		fmt.Fprintf(stdout, "not checked, because they are being drawn or have just become due: %d\n", n)
	}
	for _, f := range seen.Findings {
		if f.Count > 1 {
			f.Detail = fmt.Sprintf("%d noons until %s: %s", f.Count, f.Last.UTC().Format(time.RFC3339Nano), f.Detail)
		}
		fmt.Fprintf(stdout, "%-10s  %s  %s\n", f.Kind, show(f.Tick), f.Detail)
	}
	for _, u := range seen.Unknown {
		err = coded{fmt.Errorf("from %s to before %s, missing noons cannot be detected: %s", show(u.Since), show(u.Until), u.Why), unseen}
	}
	if n := len(seen.Findings); n > 0 {
		return fmt.Errorf("problems found: %d", n)
	}
	if err == nil {
		fmt.Fprintf(stdout, "all noons were drawn, each once, with %d winners\n", s.winners)
	}
	return err
}

func compare(ctx context.Context, options *redis.UniversalOptions, at store.Address, winners int, from, to time.Time) (seen singleton.Verification, draws int, err error) {
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		return seen, 0, err
	}
	defer client.Close(context.WithoutCancel(ctx)) // it holds nothing
	job, err := singleton.NewJob(client, noon.Job)
	if err != nil {
		return seen, 0, err
	}
	st, err := store.View(at)
	if err != nil {
		return seen, 0, err
	}
	defer st.Close()
	return noon.Verify(ctx, job, st, winners, from, to)
}

func printWinners(ctx context.Context, s settings, stdout io.Writer) error {
	at, databaseErr := s.databaseAddress()
	from, to, err := s.span()
	if err := errors.Join(databaseErr, err); err != nil {
		return coded{err, refused}
	}
	st, err := store.View(at)
	if err != nil {
		return coded{err, unseen}
	}
	defer st.Close()
	draws, err := st.Draws(ctx, noon.Job, from, to)
	if err != nil {
		return coded{err, unseen}
	}
	for _, d := range draws {
		triggered := ""
		if d.Triggered {
			triggered = "  (triggered)"
		}
		fmt.Fprintf(stdout, "%s%s  drawn by %s at attempt %d, token %d\n", d.Tick.In(s.location).Format(stamp), triggered, d.DrawnBy, d.Attempt, d.Token)
		for i, id := range d.Winners {
			fmt.Fprintf(stdout, "  %3d  %s\n", i+1, id)
		}
	}
	return nil
}
