package several_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// majority is the Count that needs two equal answers of three servers.
func majority(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
	times := map[any]int{}
	for _, a := range answers {
		if times[a.Value]++; a.Err == nil && times[a.Value] > n/2 {
			return a, true
		}
	}
	return wire.Answer{Err: wire.ErrNoQuorum}, len(answers) == n
}

// all is the Count that needs the answers of all servers, and takes the last one's.
func all(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
	return answers[n-1], len(answers) == n
}

// connect returns the Wire of servers in a bubble. The network of the first one has the faults.
func connect(t *testing.T, faults *lockcoretest.Faults, servers ...*lockcoretest.Redis) *several.Wire {
	t.Helper()
	targets := make([]redis.Options, len(servers))
	for i, server := range servers {
		opt := server.Options()
		if i == 0 {
			opt = server.OptionsVia(faults)
		}
		rdb := redis.NewClient(opt)
		targets[i] = *rdb.Options()
		testenv.Must(t, rdb.Close())
	}
	began := time.Now()
	return several.New(targets, wire.Config{
		Channel: func(string) string { return "to this process" },
		Now:     func() time.Duration { return time.Since(began) },
		Failed:  func(wire.Request, error) {},
		Message: func(string) {},
		Missed:  func(string) {},
	}, several.Watchers{
		Health:   func(int, error) {},
		Answered: func(int, any, time.Duration) {},
		Failed:   func(int, bool) {},
	})
}

// inBubble runs a test with the Wire of three servers. The network of the first one has the faults.
func inBubble(t *testing.T, test func(t *testing.T, w *several.Wire, faults *lockcoretest.Faults, servers []*lockcoretest.Redis)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := lockcoretest.NewFaults()
		servers := []*lockcoretest.Redis{lockcoretest.NewRedis(t), lockcoretest.NewRedis(t), lockcoretest.NewRedis(t)}
		w := connect(t, faults, servers...)
		defer w.Close()
		test(t, w, faults, servers)
	})
}

// The end of an attempt goes to each server that may have got a request of it. Where one was not answered,
// it is the form that is for late requests. Where nothing was sent, nothing is.
func TestEndOfAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *several.Wire, faults *lockcoretest.Faults, servers []*lockcoretest.Redis) {
		if _, err := w.Send(t.Context(), "", several.Counted(wire.Command("ping"), majority, nil), time.Second); err != nil {
			t.Fatal(err)
		}
		trail := several.NewTrail()
		lost := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: testenv.Command("INCR")})
		servers[2].Stop()
		synctest.Wait() // the Wire notices it. Otherwise the next request may be sent, and lost
		_, err := w.Send(t.Context(), "", several.Counted(wire.Command("incr", "lock"), majority, trail), time.Second)
		if !errors.Is(err, wire.ErrNoQuorum) || lost.Fired() == 0 {
			t.Fatalf("the request: %v", err)
		}
		lost.Lift()
		testenv.Must(t, servers[2].Start())
		time.Sleep(100 * time.Millisecond) // the next request is a trial
		end := several.Leaving(several.Counted(wire.Command("set", "end", "plain"), all, trail), wire.Command("set", "end", "late"))
		if _, err := w.Send(t.Context(), "", end, time.Second); !errors.Is(err, several.ErrUnreached) {
			t.Errorf("the end: %v", err)
		}
		for i, want := range []string{"late", "plain", ""} {
			testenv.Equal(t, fmt.Sprintf("the end of server %d", i),
				servers[i].Client().Get(t.Context(), "end").Val(), want)
		}
		if _, err := w.Send(t.Context(), "", several.Counted(wire.Command("incr", "lock"), majority, trail), time.Second); !errors.Is(err, wire.ErrNoQuorum) {
			t.Errorf("a request after the end: %v", err)
		}
	})
}

// A server that does not answer the end of an attempt does not get it again.
func TestEndIsSentOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *several.Wire, faults *lockcoretest.Faults, _ []*lockcoretest.Redis) {
		trail := several.NewTrail()
		if _, err := w.Send(t.Context(), "", several.Counted(wire.Command("incr", "lock"), all, trail), time.Second); err != nil {
			t.Fatal(err)
		}
		lost := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: testenv.Command("DEL")})
		end := several.Leaving(several.Counted(wire.Command("del", "lock"), majority, trail), wire.Command("del", "lock"))
		if _, err := w.Send(t.Context(), "", end, time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		testenv.Equal(t, "how often the server got the end", lost.Fired(), 1)
	})
}

// The end waits for an earlier request that is still in flight, and Drain for the end.
func TestEndWaitsForEarlierRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, w *several.Wire, faults *lockcoretest.Faults, servers []*lockcoretest.Redis) {
		trail := several.NewTrail()
		faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 500 * time.Millisecond, Match: testenv.Command("INCR")})
		began := time.Now()
		if _, err := w.Send(t.Context(), "", several.Counted(wire.Command("incr", "lock"), majority, trail), time.Second); err != nil {
			t.Fatal(err)
		}
		end := several.Leaving(several.Counted(wire.Command("set", "end", "plain"), majority, trail), wire.Command("set", "end", "late"))
		if _, err := w.Send(t.Context(), "", end, time.Second); err != nil || time.Since(began) > 0 {
			t.Errorf("the end: %v after %v", err, time.Since(began))
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		w.Drain(short)
		testenv.Equal(t, "the time of Drain, whose context ended after 100 ms", time.Since(began), 100*time.Millisecond)
		w.Drain(t.Context())
		testenv.Equal(t, "the time of Drain", time.Since(began), 500*time.Millisecond)
		testenv.Equal(t, "the end of the slow server", servers[0].Client().Get(t.Context(), "end").Val(), "plain")
	})
}

// The stamp of a request to several servers is that of the first one that it is sent to.
func TestStampOfSeveralServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := lockcoretest.NewFaults()
		faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 300 * time.Millisecond, Match: lockcoretest.Command("HELLO")})
		w := connect(t, faults, lockcoretest.NewRedis(t), lockcoretest.NewRedis(t))
		defer w.Close()
		time.Sleep(time.Second)
		var stamp wire.Stamp
		if _, err := w.Send(t.Context(), "", several.Counted(wire.Command("ping"), all, nil).Stamped(&stamp), time.Second); err != nil {
			t.Fatal(err)
		}
		testenv.Equal(t, "the time until it was sent", stamp.At(), time.Second)
	})
}

// Each waits for a server that is slower than a majority for only so long. After Close, it returns at once.
func TestEach(t *testing.T) {
	inBubble(t, func(t *testing.T, w *several.Wire, faults *lockcoretest.Faults, _ []*lockcoretest.Redis) {
		slow := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 500 * time.Millisecond, Match: testenv.Command("ECHO")})
		echo := func(server int) wire.Request { return wire.Command("echo", server) }
		for rest, answered := range map[time.Duration]bool{100 * time.Millisecond: false, time.Second: true} {
			began := time.Now()
			got := w.Each(t.Context(), echo, 3*time.Second, rest)
			testenv.Equal(t, fmt.Sprintf("the time with a rest of %v", rest),
				time.Since(began), min(rest, 500*time.Millisecond))
			if got[1].Value != "1" || got[2].Value != "2" || answered != (got[0].Value == "0") || answered == errors.Is(got[0].Err, wire.ErrUnknown) {
				t.Errorf("with a rest of %v: %v", rest, got)
			}
			time.Sleep(time.Second)
		}
		slow.Lift()
		w.Close()
		for _, a := range w.Each(t.Context(), echo, 3*time.Second, time.Second) {
			if !errors.Is(a.Err, wire.ErrClosed) {
				t.Errorf("after Close: %v", a)
			}
		}
	})
}
