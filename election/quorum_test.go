package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const quorumTTL = 10 * time.Second

// A quorumEnv has several servers in a bubble.
type quorumEnv struct {
	*env
	servers []*lockcoretest.Redis
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
	var all []redis.UniversalClient
	for _, s := range servers {
		all = append(all, s.Client())
	}
	c, err := lockcore.NewQuorum(all, lockcore.QuorumConfig{MaxTTL: quorumTTL, Config: lockcore.Config{Identity: identity}})
	must(e, err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
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
		first := a.run().leads(1)
		b.run()
		holder := func(r *replica, identity string, token uint64) {
			e.Helper()
			e.Until(identity+" leads, in the record", func() bool {
				rec, err := r.le.Election().Record(e.Context())
				return err == nil && rec.Holder == identity && rec.Token == token && rec.Left > 0 && rec.Left <= quorumTTL
			})
		}
		holder(b, "a", first)
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
		holder(b, "a", first)
		e.Until("the renewals write the record again", func() bool { return e.holder(1) == "a" })
		must(e, a.le.Resign(e.Context()))
		second := b.leads(1)
		mustIs(e, a.ended(1), election.ErrResigned)
		holder(a, "b", second)
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
		third := a.leads(2)
		if first == 0 || second <= first || third <= second {
			e.Errorf("tokens %d, %d and %d", first, second, third)
		}
		holder(a, "a", third)
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
