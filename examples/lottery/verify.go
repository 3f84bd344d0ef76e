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
	"github.com/noonlock/noonlock/singleton/schedule"
)

const stamp = "2006-01-02 15:04:05.999 -07:00" // of a noon

// verify checks that the noons of the schedule were drawn once. It changes nothing.
func verify(ctx context.Context, s settings, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	from, to, spanErr := s.span()
	due, err := schedule.Parse(s.schedule, schedule.Config{TimeZone: s.location, Name: noon.Job})
	client, st, at, err := s.connect(errors.Join(spanErr, named("schedule", err)))
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx)) // it holds nothing
	defer st.Close()
	v, err := noon.Verify(ctx, client, st, due, s.winners, from, to)
	if err != nil {
		return coded{err, unseen}
	}
	if v.Noons == v.Pending && len(v.Findings) == 0 {
		if s.nothingPasses {
			fmt.Fprintln(stdout, "there is no noon to verify")
			return nil
		}
		return coded{errors.New("there is no noon to verify"), unseen}
	}
	show := func(t time.Time) string { return t.In(s.location).Format(stamp) }
	fmt.Fprintf(stdout, "from %s to before %s: %d noons, %d draws in %s, %d successes in the ledger; not checked, because just due: %d\n",
		show(v.Since), show(v.Until), v.Noons-v.Pending, v.Draws, at, v.Recorded, v.Pending)
	for _, f := range v.Findings {
		fmt.Fprintf(stdout, "%-7s  %s  %s\n", f.Kind, show(f.Tick), f.Detail)
	}
	if n := len(v.Findings); n > 0 {
		return fmt.Errorf("problems found: %d", n)
	}
	fmt.Fprintf(stdout, "all noons were drawn, each once, with %d winners\n", s.winners)
	return nil
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
