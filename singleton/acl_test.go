package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// daemonRights are the ACL rights that a Daemon needs, and onceRights those of a Once, in
// addition to keys and channels.
var (
	daemonRights = strings.Fields("evalsha eval subscribe ping publish" + // the last three: for messages; without them a waiter is slow
		" exists get set del pexpire pttl time zadd zrange zrem zscore hset hget hdel")
	onceRights = strings.Fields("evalsha eval time lrange subscribe unsubscribe ping publish" +
		" exists get set hget hset hdel hmget hkeys hgetall hexists hlen lpush ltrim llen pttl pexpire persist")
)

// A narrow user has few rights. The log of its clients is kept.
type narrowUser struct {
	*fleet
	t       *testing.T
	name    string
	without string
	log     testenv.Log
	wait    time.Duration // for an event that a missing right may prevent

	mu    sync.Mutex
	last  context.Context // of the work that began last
	token uint64
	runs  int
}

func (f *fleet) narrowUser(t *testing.T, name, channels string, rights []string, without string) *narrowUser {
	t.Helper()
	rules := []string{"reset", "on", ">secret", "resetkeys", "resetchannels", "~noonlock:*", "-@all"}
	for c := range strings.FieldsSeq(channels) {
		rules = append(rules, "&"+c)
	}
	for _, r := range rights {
		if r != without {
			rules = append(rules, "+"+r)
		}
	}
	if err := f.Raw.ACLSetUser(t.Context(), name, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	u := &narrowUser{fleet: f, t: t, name: name, without: without, wait: 2 * time.Second}
	if without == "" || slow(without) {
		u.wait = patience
	}
	return u
}

// slow reports the rights without which a client receives no messages.
func slow(right string) bool {
	return right == "subscribe" || right == "unsubscribe" || right == "ping" || right == "publish"
}

// client makes a client of this user, with its own network.
func (u *narrowUser) client(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	u.t.Helper()
	opt, net := u.Link()
	opt.Username, opt.Password = u.name, "secret"
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, lockcore.Config{Identity: identity, Logger: u.log.Info(identity + ": ")})
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the right to release its locks may be missing
		rdb.Close()
	})
	return c, net
}

// begins records that work begins. Other work must not continue at that time.
func (u *narrowUser) begins(ctx context.Context, token uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs++
	if u.last != nil && u.last.Err() == nil {
		u.t.Errorf("begun with token %d while the work of token %d continues", token, u.token)
	}
	if token < u.token {
		u.t.Errorf("token %d after %d", token, u.token)
	}
	u.last, u.token = ctx, token
}

func (u *narrowUser) begun() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.runs
}

// come waits for an event that missing rights may prevent.
func (u *narrowUser) come(what string, condition func() bool) error {
	for end := time.Now().Add(u.wait); !condition(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("in vain waited until %s; the log:\n%s", what, &u.log)
		}
	}
	return nil
}

// needed asserts that a user without a right was refused something, and the consequence: an
// error, or a log line.
func (u *narrowUser) needed(err error) {
	u.t.Helper()
	logged := u.log.Count("NOPERM") + u.log.Count("ACL failure") + u.log.Count("can't run this command")
	switch {
	case slow(u.without) && err != nil:
		u.t.Errorf("a waiter must be slow without it, not wrong: %v", err)
	case u.without == "ping": // sent to a subscription that was silent for long
		return
	case !slow(u.without) && err == nil && logged == 0:
		u.t.Error("not needed at all")
	}
	if err := u.come("the server has refused something", func() bool {
		log, err := u.Raw.ACLLog(u.t.Context(), 1000).Result()
		if err != nil {
			u.t.Fatal(err)
		}
		for _, l := range log {
			if l.Username == u.name {
				return true
			}
		}
		return false
	}); err != nil {
		u.t.Errorf("not needed: %v", err)
	}
}

// eachRight tests a use with all rights, and without each of them, and then a second use
// with all rights again.
func eachRight(t *testing.T, f *fleet, channels string, rights []string, use func(u *narrowUser, name string) error) {
	t.Helper()
	all := f.narrowUser(t, "all", channels, rights, "")
	if err := use(all, "all"); err != nil {
		t.Fatalf("with the documented rights: %v", err)
	}
	if log, err := f.Raw.ACLLog(t.Context(), 10).Result(); err != nil || len(log) > 0 {
		for _, l := range log {
			t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
		}
	}
	for i, right := range rights {
		t.Run("without "+right, func(t *testing.T) {
			if right == "eval" {
				// Alone, so no other client sends the source.
				if err := f.Raw.ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			} else {
				t.Parallel()
			}
			name := fmt.Sprint("u", i)
			u := f.narrowUser(t, name, channels, rights, right)
			u.needed(use(u, name))
			if slow(right) {
				return
			}
			after := f.narrowUser(t, name+"-after", channels, rights, "")
			after.last, after.token = u.last, u.token
			if err := use(after, name); err != nil {
				t.Errorf("after a time without it: %v", err)
			}
		})
	}
}

// A user with exactly the documented rights can do everything that a Daemon needs. If one
// right is missing, that is noticed, and no two replicas work at a time.
// Mutant: a script of the queue uses a command that is not documented.
func TestFault60_ACLOfADaemon(t *testing.T) {
	t.Parallel()
	f := onServer(t)
	eachRight(t, f, "noonlock:ch:*", daemonRights, func(u *narrowUser, name string) error {
		work := func(ctx context.Context, token uint64) error {
			u.begins(ctx, token)
			<-ctx.Done()
			return ctx.Err()
		}
		start := func(identity string) (stop func()) {
			c, _ := u.client(identity)
			s, err := singleton.NewDaemon(c, name, work, singleton.DaemonConfig{TTL: 3 * time.Second, Logger: u.log.Info(identity + ": ")})
			if err != nil {
				u.t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(u.t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := s.Run(ctx); err != nil {
					u.t.Errorf("Run of %s: %v", identity, err)
				}
			}()
			return func() {
				cancel()
				<-done
			}
		}
		queued := func(n int64) func() bool {
			return func() bool { return u.Raw.ZCard(u.t.Context(), u.key("daemon/"+name, "queue")).Val() == n }
		}
		stopA := start("a")
		defer func() { stopA() }()
		if err := u.come("the first one runs", func() bool { return u.begun() == 1 }); err != nil {
			return err
		}
		stopB := start("b")
		defer stopB()
		if err := u.come("the second one is queued", queued(1)); err != nil {
			return err
		}
		quit := start("quitter")
		err := u.come("and one more", queued(2))
		quit()
		if err != nil {
			return err
		}
		if err := u.come("the cancelled one has left the queue", queued(1)); err != nil {
			return err
		}
		<-time.After(3300 * time.Millisecond) // renewals
		if n := u.begun(); n != 1 {
			return fmt.Errorf("%d starts before the hand-over; the log:\n%s", n, &u.log)
		}
		stopA()
		return u.come("the second one runs", func() bool { return u.begun() == 2 })
	})
}

// A user with exactly the documented rights can do everything that a Once needs, also while
// an operator has paused it. If one right is missing, that is noticed, and a recorded
// success is not repeated.
// Mutant: a script of the ledger uses a command that is not documented.
func TestFault60_ACLOfAOnce(t *testing.T) {
	t.Parallel()
	f := onServer(t)
	var mu sync.Mutex
	succeeded := map[string]bool{} // the names for which a Do has returned nil
	eachRight(t, f, "noonlock:ch:* noonlock:job:*", onceRights, func(u *narrowUser, name string) error {
		ctx, cancel := context.WithTimeout(u.t.Context(), u.wait)
		defer cancel()
		once := func(identity string) (*singleton.Once, *lockcoretest.Faults) {
			c, net := u.client(identity)
			o, err := singleton.NewOnce(c, name, singleton.OnceConfig{TTL: time.Second, MaxAttempts: 1000, Logger: u.log.Info(identity + ": ")})
			if err != nil {
				u.t.Fatal(err)
			}
			return o, net
		}
		a, net := once("a")
		b, _ := once("b")
		work := func(result error, took <-chan struct{}) func(context.Context, uint64) error {
			return func(ctx context.Context, token uint64) error {
				mu.Lock()
				if succeeded[name] {
					u.t.Error("done again after it has succeeded")
				}
				mu.Unlock()
				u.begins(ctx, token)
				select {
				case <-took:
					return result
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		do := func(o *singleton.Once, work func(context.Context, uint64) error) <-chan error {
			result := make(chan error, 1)
			go func() {
				err := o.Do(ctx, work)
				if err == nil {
					mu.Lock()
					succeeded[name] = true
					mu.Unlock()
				}
				result <- err
			}()
			return result
		}
		if mu.Lock(); succeeded[name] { // without a right that is needed elsewhere
			mu.Unlock()
			return <-do(a, work(nil, nil))
		}
		mu.Unlock()

		// One fails, and another one reports that.
		leave := make(chan struct{})
		before := u.begun()
		first := do(a, work(errBroken, leave))
		if err := u.come("it is run", func() bool { return u.begun() > before || len(first) > 0 }); err != nil {
			return errors.Join(err, <-first)
		}
		second := do(b, work(errBroken, leave))
		<-time.After(500 * time.Millisecond) // a renewal; the other one waits
		close(leave)
		result := <-first
		if result == nil && u.begun() == before { // it had succeeded, but could not be recorded
			return <-second
		}
		for _, err := range []error{result, <-second} {
			if !errors.Is(err, singleton.ErrOnceFailed) {
				return fmt.Errorf("want a failure, not %w", err)
			}
		}

		// It waits while it is paused; then it succeeds, and the answer is lost.
		job := func(do func(*singleton.Job, context.Context) error) {
			c := u.ClientWith(u.Direct(), lockcore.Config{Identity: "operator"})
			j, err := singleton.NewJob(c, "once/"+name)
			if err == nil {
				err = do(j, u.t.Context())
			}
			if err != nil {
				u.t.Error(err)
			}
		}
		job((*singleton.Job).Pause)
		before = u.begun()
		third := do(a, work(nil, leave))
		<-time.After(100 * time.Millisecond)
		lost, err := net.Add(lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: request("complete"), Count: 1})
		if err != nil {
			u.t.Fatal(err)
		}
		job((*singleton.Job).Resume)
		if err := <-third; err != nil {
			return err
		}
		if lost.Fired() != 1 || u.begun() != before+1 {
			u.t.Errorf("%d answers were lost, run %d times", lost.Fired(), u.begun()-before)
		}
		return <-do(b, work(nil, leave))
	})
}
