package election_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A quorumEnv has several servers, in a bubble or real.
type quorumEnv struct {
	*env
	bubbles []*lockcoretest.Redis
	real    []*servers.RedisServer
	raws    map[int]*redis.Client
}

const quorumTTL = 10 * time.Second

// onQuorum runs a test with n servers in a bubble, and with n real ones. They grant at once.
func onQuorum(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	t.Parallel()
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(e *env) {
			q := &quorumEnv{env: e}
			for range n {
				q.bubbles = append(q.bubbles, lockcoretest.NewRedis(e.T))
			}
			q.form()
			test(q)
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("it waits for servers that have lost their data")
		}
		q := &quorumEnv{env: realEnv(t)}
		for range n {
			q.real = append(q.real, servers.Redis(t))
		}
		q.form()
		test(q)
	})
}

// form makes all servers members of the quorum, without the wait of the first start.
func (e *quorumEnv) form() {
	e.Helper()
	list := quorum.List{Number: 1, Size: len(e.options()), Version: 2}
	for i := range e.options() {
		list.Servers = append(list.Servers, strconv.Itoa(i))
	}
	for i, id := range list.Servers {
		rdb := e.raw(i)
		_, run, _ := strings.Cut(rdb.Info(e.Context(), "server").Val(), "run_id:")
		run, _, _ = strings.Cut(run, "\n")
		must(e, rdb.HSet(e.Context(), "noonlock:quorum", "run", strings.TrimSpace(run), "id", id,
			"list", list.Name(), "servers", list.Text(), "after", 0,
			"longest", quorumTTL.Milliseconds(), "top", 0).Err())
	}
}

func (e *quorumEnv) options() (all []*redis.Options) {
	for _, r := range e.bubbles {
		all = append(all, r.Options())
	}
	for _, r := range e.real {
		all = append(all, testenv.Options(r.Addr()))
	}
	return all
}

// raw returns a client of one server.
func (e *quorumEnv) raw(i int) *redis.Client {
	if e.raws == nil {
		e.raws = map[int]*redis.Client{}
	}
	if e.raws[i] == nil {
		e.raws[i] = redis.NewClient(e.options()[i])
		e.Cleanup(func() { _ = e.raws[i].Close() })
	}
	return e.raws[i]
}

func (e *quorumEnv) client(identity string) *lockcore.Client {
	e.Helper()
	var all []redis.UniversalClient
	for _, opt := range e.options() {
		all = append(all, redis.NewClient(opt))
	}
	c, err := lockcore.NewQuorum(all, lockcore.QuorumConfig{MaxTTL: quorumTTL, Config: lockcore.Config{Identity: identity}})
	must(e, err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
		for _, rdb := range all {
			_ = rdb.Close()
		}
	})
	return c
}

func (e *quorumEnv) kill(i int) {
	if e.bubbles != nil {
		e.bubbles[i].Stop()
	} else {
		e.real[i].Kill()
	}
}

func (e *quorumEnv) restart(i int) {
	e.Helper()
	if e.bubbles != nil {
		must(e, e.bubbles[i].Start(true))
	} else {
		e.real[i].Restart(e.T)
	}
}

// freeze stops a server without closing its connections.
func (e *quorumEnv) freeze(i int) (thaw func()) {
	if e.bubbles != nil {
		e.bubbles[i].Hang()
		return e.bubbles[i].Unhang
	}
	e.real[i].Pause()
	return e.real[i].Resume
}

func steady() election.Config {
	return election.Config{LeaseDuration: quorumTTL, RenewDeadline: 8 * time.Second, RetryPeriod: 500 * time.Millisecond}
}

func (e *quorumEnv) elector(identity string) *replica {
	e.Helper()
	return e.replica(e.client(identity), steady())
}

// reads reads the record again and again, as one reader, until the test ends. The token must
// never decrease.
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
			if err == nil && (r.Token < last.Token || r.Term < last.Term || r.Token == last.Token && r.Released.IsZero() && !last.Released.IsZero()) {
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
// and hand-overs.
func TestFault90_ElectionOnAQuorum(t *testing.T) {
	onQuorum(t, 5, func(e *quorumEnv) {
		defer e.reads()()
		cfg := steady()
		cfg.Metadata = map[string]string{"addr": "10.0.0.7:80"}
		a, b := e.replica(e.client("a"), cfg), e.elector("b")
		first := a.run().leads(1)
		if first.Number != 1 || first.Token == 0 || first.Since.IsZero() {
			e.Errorf("term %+v", first)
		}
		b.run()
		holder := func(r *replica, identity string, term uint64) {
			e.Helper()
			e.Until(identity+" leads, in the record", func() bool {
				rec, err := r.le.Election().Record(e.Context())
				return err == nil && rec.Holder == identity && rec.Term == term && rec.Left > 0 && rec.Left <= quorumTTL
			})
		}
		holder(b, "a", 1)
		if rec, err := b.le.Election().Record(e.Context()); err != nil || rec.Token != first.Token || !rec.Acquired.Equal(first.Since) ||
			rec.Lease != quorumTTL || rec.Metadata["addr"] != "10.0.0.7:80" || !rec.Released.IsZero() {
			e.Errorf("the record is %+v, %v", rec, err)
		}
		mustIs(e, a.le.TransferTo(e.Context(), "b"), noonlock.ErrConfig)
		board, err := election.NewElection(e.client("operator"), electionName)
		must(e, err)
		_, err = board.Resign(e.Context(), 0)
		mustIs(e, err, noonlock.ErrConfig)
		_, err = board.Candidates(e.Context())
		mustIs(e, err, noonlock.ErrConfig)
		_, err = election.Elections(e.Context(), e.client("reader of names"), nil)
		mustIs(e, err, noonlock.ErrConfig)

		e.kill(0) // and a server loses its data during the term
		must(e, e.raw(1).FlushAll(e.Context()).Err())
		holder(b, "a", 1)
		e.Until("the renewals write the record again", func() bool {
			return e.raw(1).HGet(e.Context(), key("leader"), "holder").Val() == "a"
		})
		must(e, a.le.Resign(e.Context()))
		second := b.leads(1)
		if second.Token <= first.Token || second.Number != 2 {
			e.Errorf("term %+v after %+v", second, first)
		}
		mustIs(e, a.ended(1), election.ErrResigned)
		holder(a, "b", 2)
		e.Until("both are notified", func() bool { return a.leaderNames() == "a b" && b.leaderNames() == "a b" })

		e.restart(0)
		e.Until("all servers grant", func() bool {
			for i := range e.options() {
				if e.raw(i).HGet(e.Context(), key("leader"), "holder").Val() != "b" || e.raw(i).PTTL(e.Context(), key("lock")).Val() <= 0 {
					return false
				}
			}
			return true
		})
		thaw2, thaw3 := e.freeze(2), e.freeze(3)
		b.stop()
		third := a.leads(2)
		if third.Token <= second.Token || third.Number != 3 {
			e.Errorf("term %+v after %+v", third, second)
		}
		holder(a, "a", 3)
		thaw2()
		thaw3()
		a.stop()
		e.Until("nobody leads, in the record", func() bool {
			rec, err := a.le.Election().Record(e.Context())
			return err == nil && rec.Holder == "" && rec.Term == 3 && !rec.Released.IsZero() && rec.Left == 0
		})
		e.history.Require(e)
	})
}

// A candidate whose list has another number of servers is not ready, and says why.
func TestQuorumOfAnotherSizeIsNotReady(t *testing.T) {
	onQuorum(t, 5, func(e *quorumEnv) {
		leader := e.elector("a").run()
		leader.leads(1)
		if e.bubbles != nil {
			e.bubbles = e.bubbles[:3]
		} else {
			e.real = e.real[:3]
		}
		other := e.elector("b").run()
		e.Until("it is not ready", func() bool {
			err := other.le.Ready()
			return errors.Is(err, lockcore.ErrNoQuorum) && strings.Contains(err.Error(), "another number of servers")
		})
		other.never()
		must(e, leader.le.Ready())
	})
}
