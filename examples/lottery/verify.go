package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

const stamp = "2006-01-02 15:04:05.999 -07:00" // of a noon

// verify compares the ledger in Redis with the schedule, as noonctl verify does, and the draws in the
// database with the ledger. It changes neither.
func verify(ctx context.Context, s settings, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	from, to, err := s.span()
	client, st, at, err := s.connect(err)
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx)) // it holds nothing
	defer st.Close()
	seen, draws, err := noon.Verify(ctx, client, st, s.winners, from, to)
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
	fmt.Fprintf(stdout, "from %s to before %s: %d noons, %d of them succeeded in the ledger, %d draws in %s; not checked, because just due: %d\n",
		show(seen.Since), show(seen.Until), seen.Ticks-len(seen.Pending), seen.Succeeded, draws, at, len(seen.Pending))
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

// connect returns a Client and the database for reading. wrong is the error of other settings.
func (s *settings) connect(wrong error) (client *lockcore.Client, st *store.Store, at store.Address, err error) {
	options, redisErr := s.redisOptions()
	at, databaseErr := s.databaseAddress()
	if err = errors.Join(redisErr, databaseErr, wrong); err != nil {
		return nil, nil, at, coded{err, refused}
	}
	if st, err = store.View(at); err != nil {
		return nil, nil, at, coded{err, unseen}
	}
	if client, err = lockcore.NewFromOptions(options, lockcore.Config{Prefix: s.prefix}); err != nil {
		st.Close()
	}
	return client, st, at, err
}

// accept makes the ledger remember this database. It is for an operator who has replaced the other.
func accept(ctx context.Context, s settings, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, st, at, err := s.connect(nil)
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	defer st.Close()
	origin, err := noon.NewOrigin(client, s.lease)
	if err != nil {
		return err
	}
	database, err := st.Origin(ctx)
	if err == nil {
		err = origin.Accept(ctx, database)
	}
	if err == nil {
		fmt.Fprintf(stdout, "the draws are in %s, %s\n", at, database)
	}
	return err
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
		triggered := map[bool]string{true: "  (triggered)"}[d.Triggered]
		fmt.Fprintf(stdout, "%s%s  drawn by %s at attempt %d, token %d\n", d.Tick.In(s.location).Format(stamp), triggered, d.DrawnBy, d.Attempt, d.Token)
		for i, id := range d.Winners {
			fmt.Fprintf(stdout, "  %3d  %s\n", i+1, id)
		}
	}
	return nil
}
