package election_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Any process can list the elections, and read the record and the candidates of each. When all replicas have stopped,
// nobody leads, and no lock and no queue is left.
func TestNamesAndElection(t *testing.T) {
	onBoth(t, func(e *env) {
		reader := e.Client("reader")
		names := func() []string {
			all, err := election.Elections(e.Context(), reader, nil)
			must(e, err)
			return all
		}
		if all := names(); len(all) != 0 {
			e.Errorf("an empty server has the elections %q", all)
		}
		cfg := e.quick()
		cfg.Metadata = map[string]string{"addr": "10.0.0.7:80"}
		a := e.replica(e.Client("a"), cfg)
		if a.le.IsLeader() || a.le.Leader() != "" {
			e.Error("it leads before it runs")
		}
		token := a.run().recorded(1)
		b := e.replica(e.Client("b"), e.quick()).run()
		for _, key := range []string{"noonlock:{elections/x}:leader", "noonlock:{x}:leader", "noonlock:{election/x}:leaders", "noonlock:{election/x}:fence", "other:{election/x}:leader"} {
			must(e, e.Raw.Set(e.Context(), key, 1, 0).Err())
		}
		if all := names(); !slices.Equal(all, []string{electionName}) {
			e.Errorf("elections %q", all)
		}
		board, err := election.NewElection(reader, electionName)
		must(e, err)
		e.Until("b waits", func() bool {
			waiting, err := board.Candidates(e.Context())
			must(e, err)
			return len(waiting) == 1 && waiting[0].Identity == "b"
		})
		r := testenv.Call(board.Record(e.Context())).Must(e)
		if r.Holder != "a" || r.Token != token || r.Acquired.IsZero() || r.Renewed.Before(r.Acquired) || r.Left <= 0 || r.Left > cfg.LeaseDuration ||
			r.Lease != cfg.LeaseDuration || r.Metadata["addr"] != "10.0.0.7:80" || !r.Released.IsZero() {
			e.Errorf("the record reads %+v", r)
		}
		b.stop()
		a.stop()
		e.Pass(50 * time.Millisecond)
		if all := names(); !slices.Equal(all, []string{electionName}) { // its last leader is still on record
			e.Errorf("elections %q", all)
		}
		last := testenv.Call(board.Record(e.Context())).Must(e)
		if last.Holder != "" || last.Token != token || last.Left > 0 || a.le.Leader() == "a" || e.Exists(key("lock")) || e.Exists(key("queue")) {
			e.Errorf("record after all have stopped: %+v", last)
		}
		c := e.replica(e.Client("c"), e.quick()).run()
		e.Until("c leads", c.le.IsLeader)
		e.replica(e.Client("d e"), e.quick()).run()
		e.queued(1)
		must(e, c.le.Resign(e.Context()))
		e.Until("the next one leads", func() bool { r, err := board.Record(e.Context()); return err == nil && r.Holder == "d e" })
		terms, err := board.Terms(e.Context())
		must(e, err)
		var got []string
		for i, r := range terms {
			got = append(got, r.Holder)
			if later := terms[max(0, i-1)]; i > 0 && (r.Token >= later.Token || r.Released.Before(r.Acquired) || r.Released.After(later.Acquired)) {
				e.Errorf("term %+v, and after it %+v", r, later)
			}
		}
		if !slices.Equal(got, []string{"d e", "c", "a"}) || !terms[0].Released.IsZero() || !terms[1].Released.Equal(terms[0].Acquired) || !terms[2].Released.Equal(last.Released) || !terms[2].Acquired.Equal(last.Acquired) {
			e.Errorf("terms %+v, the record of the first one %+v", terms, last)
		}
	})
}

// A user with exactly the documented rights can do everything without an error.
func TestRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	exact := e.As("exact", append(testenv.Rights(t, lock.NeedsOf(election.Election{}), false), "+type")...)
	as := func(identity string) *lockcore.Client {
		return e.ClientWith(exact, lockcore.Config{Identity: identity})
	}
	must(e, doctor.CheckRights(e.Context(), as("x"), electionName, doctor.UseElection))
	a, b, c := e.replica(as("a"), e.quick()), e.replica(as("b"), e.quick()), e.replica(as("c"), e.quick())
	e.queueUp(a, b, c)
	e.Pass(2 * leaseDuration)
	must(e, a.le.TransferTo(e.Context(), "c"))
	c.leads(1)
	e.Until("all have been notified", func() bool { return b.leaderNames() == "a c" })
	if got := a.queue(); !strings.HasPrefix(got, "b") {
		t.Errorf("the queue is %q", got)
	}
	for _, r := range []*replica{b, a, c} {
		r.stop()
	}
	for _, l := range e.Raw.ACLLog(e.Context(), 10).Val() {
		t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
	}
}
