package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const quorumTTL = 10 * time.Second

// A quorumEnv has several servers in a bubble, or one.
type quorumEnv struct {
	*env
	servers []*lockcoretest.Redis
	log     testenv.Log // of all clients
}

// onQuorum runs a test with so many servers.
func onQuorum(t *testing.T, servers int, test func(e *quorumEnv)) {
	t.Helper()
	inBubble(t, func(one *env) {
		e := &quorumEnv{env: one}
		for range servers {
			e.servers = append(e.servers, lockcoretest.NewRedis(e.T))
		}
		test(e)
	})
}

func (e *quorumEnv) client(identity string) *lockcore.Client {
	e.Helper()
	return e.clientOf(identity, e.servers...)
}

func (e *quorumEnv) clientOf(identity string, servers ...*lockcoretest.Redis) *lockcore.Client {
	e.Helper()
	cfg := lockcore.Config{Identity: identity, Logger: e.log.Info("")}
	if len(servers) == 1 {
		return e.ClientWith(servers[0].Options(), cfg)
	}
	var all []redis.UniversalClient
	for _, s := range servers {
		all = append(all, s.Client())
	}
	c, err := lockcore.NewQuorum(all, lockcore.QuorumConfig{MaxTTL: quorumTTL, Config: cfg})
	must(e, err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// recorded waits until a replica leads for the nth time, and a reader gets that.
func (e *quorumEnv) recorded(reader *election.Election, r *replica, n int) (token uint64) {
	e.Helper()
	token = r.leads(n)
	e.Until("the record names "+r.le.Identity(), func() bool {
		rec, err := reader.Record(e.Context())
		return err == nil && rec.Holder == r.le.Identity() && rec.Token == token && rec.Left > 0 && rec.Left <= quorumTTL
	})
	return token
}

// holder returns who leads, in the record of one server.
func (e *quorumEnv) holder(i int) string {
	return e.servers[i].Client().HGet(e.Context(), key("leader"), "holder").Val()
}

// reads reads the record again and again, as one reader, until stop. The token must never decrease.
func (e *quorumEnv) reads() (stop func()) {
	e.Helper()
	reader, err := election.NewElection(e.client("reader"), electionName)
	must(e, err)
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var last election.LeaderRecord
		for ctx.Err() == nil {
			r, err := reader.Record(ctx)
			if err == nil && (r.Token < last.Token || r.Token == last.Token && r.Released.IsZero() && !last.Released.IsZero()) {
				e.Errorf("a reader got %+v after %+v", r, last)
			}
			if err == nil {
				last = r
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// An election works on several servers. A minority is killed, flushed and frozen, during terms
// and hand-overs. What needs a queue is refused.
func TestFault90_ElectionOnAQuorum(t *testing.T) {
	t.Parallel()
	onQuorum(t, 5, func(e *quorumEnv) {
		defer e.reads()()
		cfg := election.Config{
			LeaseDuration: quorumTTL, RenewDeadline: 8 * time.Second, RetryPeriod: 500 * time.Millisecond, Metadata: map[string]string{"addr": "10.0.0.7:80"},
		}
		a, b := e.replica(e.client("a"), cfg), e.replica(e.client("b"), cfg)
		a.run().leads(1)
		b.run()
		first := e.recorded(b.le.Election(), a, 1)
		if rec, err := b.le.Election().Record(e.Context()); err != nil || rec.Acquired.IsZero() || rec.Granted != "" ||
			rec.Lease != quorumTTL || rec.Metadata["addr"] != "10.0.0.7:80" || !rec.Released.IsZero() {
			e.Errorf("the record is %+v, %v", rec, err)
		}
		board, err := election.NewElection(e.client("operator"), electionName)
		must(e, err)
		for _, refused := range []func() error{
			func() error { return a.le.TransferTo(e.Context(), "b") },
			func() error { _, err := board.Resign(e.Context(), 0); return err },
			func() error { _, err := board.Candidates(e.Context()); return err },
			func() error { _, err := election.Elections(e.Context(), e.client("reader of names"), nil); return err },
		} {
			mustIs(e, refused(), noonlock.ErrConfig)
		}

		e.servers[0].Stop() // and a server loses its data during the term
		must(e, e.servers[1].Client().FlushAll(e.Context()).Err())
		e.recorded(b.le.Election(), a, 1)
		e.Until("the renewals write the record again", func() bool { return e.holder(1) == "a" })
		must(e, a.le.Resign(e.Context()))
		second := e.recorded(a.le.Election(), b, 1)
		mustIs(e, a.ended(1), election.ErrResigned)
		e.Until("both are notified", func() bool { return a.leaderNames() == "a b" && b.leaderNames() == "a b" })

		e.servers[0].Server().FlushAll()
		must(e, e.servers[0].Start())
		e.Until("all servers grant", func() bool {
			for i, s := range e.servers {
				if e.holder(i) != "b" || s.Client().PTTL(e.Context(), key("lock")).Val() <= 0 {
					return false
				}
			}
			return true
		})
		e.servers[2].Hang()
		e.servers[3].Hang()
		b.stop()
		third := e.recorded(a.le.Election(), a, 2)
		if first == 0 || second <= first || third <= second {
			e.Errorf("tokens %d, %d and %d", first, second, third)
		}
		e.servers[2].Unhang()
		e.servers[3].Unhang()
		a.stop()
		e.Until("nobody leads, in the record", func() bool {
			rec, err := a.le.Election().Record(e.Context())
			return err == nil && rec.Holder == "" && rec.Token == third && !rec.Released.IsZero() && rec.Left == 0
		})
		e.oneAtATime()
	})
}

// A reader has another server in its list, or the servers are new. It reads with a majority, and writes nothing.
func TestFault136_ReadersOfAQuorum(t *testing.T) {
	t.Parallel()
	onQuorum(t, 4, func(e *quorumEnv) {
		of, other := e.servers[:3], []*lockcoretest.Redis{e.servers[0], e.servers[1], e.servers[3]}
		read := func(servers []*lockcoretest.Redis) (election.LeaderRecord, error) {
			e.Helper()
			board, err := election.NewElection(e.clientOf("reader", servers...), electionName)
			must(e, err)
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			board.Watch(ctx)
			rec, err := board.Record(ctx)
			time.Sleep(3 * time.Second)
			for i, s := range servers {
				if keys := s.Server().Keys(); len(keys) > 0 && s.Client().HGet(ctx, "noonlock:quorum", "list").Val() == "" {
					e.Errorf("server %d has the keys %q", i, keys)
				}
			}
			return rec, err
		}
		_, err := read(of)
		mustIs(e, err, lockcore.ErrNoQuorum)
		leader := e.replica(e.clientOf("leader", of...), quick())
		term := leader.run().leads(1)
		e.Until("the servers have the record", func() bool { return e.holder(0) == "leader" && e.holder(1) == "leader" })
		if rec, err := read(other); err != nil || rec.Holder != "leader" {
			e.Errorf("%+v, %v", rec, err)
		}
		time.Sleep(3 * quorumTTL)
		if now, n := leader.term(); now != term || n != 1 {
			e.Errorf("the leader has term %+v, %d, and had %+v", now, n, term)
		}
		leader.stop()
	})
}

// A reader that has read a term never returns an earlier one, even after a fault that no majority
// covers: the only other server with the record does not answer, and one has lost its data.
func TestQuorumReadsDoNotGoBack(t *testing.T) {
	t.Parallel()
	onQuorum(t, 3, func(e *quorumEnv) {
		leader := e.client("a")
		a, b := e.replica(leader, quick()), e.replica(leader, quick())
		board := testenv.Call(election.NewElection(e.client("reader"), electionName)).Must(e)
		released := func() string { return e.servers[2].Client().HGet(e.Context(), key("leader"), "released").Val() }
		first := a.run().leads(1)
		e.Until("the last server has the record, too", func() bool { return e.holder(2) == "a" })
		a.stop()
		e.Until("the last server has the end, too", func() bool { return released() != "" })
		e.servers[2].Stop()
		b.run()
		second := e.recorded(board, b, 1)
		b.stop()
		record := func() election.LeaderRecord {
			e.Helper()
			return testenv.Call(board.Record(e.Context())).Must(e)
		}
		if r := record(); r.Token != second || second <= first || r.Holder != "" || r.Released.IsZero() || r.Left != 0 {
			e.Errorf("after the end, the record is %+v", r)
		}
		must(e, e.servers[2].Start())
		e.servers[0].Stop()
		e.servers[0].Server().FlushAll()
		must(e, e.servers[0].Start())
		e.Until("all servers are members", func() bool {
			_, err := b.le.Election().Record(e.Context()) // its client has led, and so lets them in
			for _, i := range []int{0, 2} {
				if e.servers[i].Client().HGet(e.Context(), "noonlock:quorum", "list").Val() == "" {
					return false
				}
			}
			return err == nil
		})
		e.servers[1].Stop()
		if r := record(); r.Token != second || r.Released.IsZero() {
			e.Errorf("the record went back to %+v", r)
		}
		board = testenv.Call(election.NewElection(e.client("new"), electionName)).Must(e)
		testenv.Equal(e, "the token that a new reader gets, as the fault did happen", record().Token, first)
	})
}

// A record that cannot be written prevents no leadership: the renewals extend the lock, and the leader logs that once.
// On one server, a candidate that finds it does not queue.
func TestRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		onQuorum(t, servers, func(e *quorumEnv) {
			const line = "the leader record cannot be written"
			for what, spoil := range map[error]func(c *redis.Client) error{
				lockcore.ErrWrongKind:   func(c *redis.Client) error { return c.Set(e.Context(), key("leader"), "a string", 0).Err() },
				election.ErrNewerSchema: func(c *redis.Client) error { return c.HSet(e.Context(), key("leader"), "v", 2).Err() },
			} {
				before := e.log.Count(line)
				a, b := e.replica(e.client("a"), quick()), e.replica(e.client("b"), quick())
				a.run().leads(1)
				for _, s := range e.servers {
					must(e, s.Client().Del(e.Context(), key("leader")).Err())
					must(e, spoil(s.Client()))
				}
				b.run()
				e.Pass(time.Minute)
				if _, n := a.term(); n != 1 || !a.le.IsLeader() {
					e.Errorf("%v: it has led %d times", what, n)
				}
				testenv.Equal(e, "lines about it", e.log.Count(line)-before, 1)
				if servers == 1 {
					mustIs(e, b.le.Ready(), what)
				}
				b.stop()
				b.never()
				a.stop()
				for _, s := range e.servers {
					must(e, s.Client().Del(e.Context(), key("leader")).Err())
				}
			}
		})
	}
}

// A record that nobody can read prevents no leadership: the first renewal replaces it. Nor does a list of terms of
// another type, or one server of a quorum that cannot store the record.
func TestRecordIsSpoilt(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		onQuorum(t, servers, func(e *quorumEnv) {
			first := e.replica(e.client("first"), quick())
			first.run().leads(1)
			first.stop()
			for _, s := range e.servers {
				must(e, s.Client().Del(e.Context(), key("leader"), key("terms")).Err())
				must(e, s.Client().HSet(e.Context(), key("leader"), "v", "1", "token", "x").Err())
				must(e, s.Client().Set(e.Context(), key("terms"), "x", 0).Err())
			}
			a := e.replica(e.client("a"), quick())
			if r, err := a.le.Election().Record(e.Context()); err == nil {
				e.Errorf("the record is %+v", r)
			}
			if servers > 1 {
				must(e, e.servers[0].Client().Del(e.Context(), key("leader")).Err())
				must(e, e.servers[0].Client().Set(e.Context(), key("leader"), "x", 0).Err())
			}
			a.run()
			e.recorded(a.le.Election(), a, 1)
		})
	}
}
