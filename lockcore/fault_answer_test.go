package lockcore_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A reply counts only for its own request. A proxy repeats one reply of each connection, each in turn. Every later
// request would get the reply to another one.
//
// Caught mutants: the id in a reply is not compared; a connection is used although a reply is left; it is used after
// the reply to another request; the reply to a plain command counts before the script that follows.
func TestFault119_RepliesToOtherRequests(t *testing.T) {
	rounds := testenv.Size(40, 400)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				held := e.try(e.mutex(e.Client("holder"), "held", ttl(time.Minute)))
				n := rounds
				if e.Bubble == nil { // there each round lasts as long as its leases
					n = testenv.Size(4, 40)
				}
				for round := range n {
					opt, net := e.Link()
					opt.Protocol = protocol
					_, err := net.Add(lockcoretest.Fault{Kind: lockcoretest.RepeatReply, Skip: round % 40, Count: 1})
					must(e, err)
					e.believesNoOther(e.ClientWith(opt, lockcore.Config{Identity: "victim"}))
					if e.Failed() {
						return
					}
				}
				must(e, held.Context().Err())
			})
		})
	}
}

// believesNoOther uses a Client alone, in batches, and with renewals. It closes the Client. The lock "held" belongs to another one.
func (e *env) believesNoOther(c *lockcore.Client) {
	e.Helper()
	var mu sync.Mutex
	var leases []*lockcore.Lease
	try := func(name string) {
		lease, err := e.mutex(c, name, ttl(400*time.Millisecond)).TryLock(e.Context())
		switch {
		case err == nil && name == "held":
			e.Error("a lease of a lock that another Client holds")
		case err == nil:
			mu.Lock()
			defer mu.Unlock()
			leases = append(leases, lease)
		}
	}
	// check compares what the leases believe with the server.
	check := func() {
		for _, lease := range leases {
			token, err := e.Raw.Get(e.Context(), e.key(lease.Name(), "fence")).Result()
			must(e, err)
			before, there, here := lease.Remaining(), e.pttl(lease.Name()), lease.Remaining()
			switch renewed := here > before; {
			case here > 0 && here > there && !renewed:
				e.Errorf("the lease of %s is valid for %v, and for %v at the server", lease.Name(), here, there)
			case token != strconv.FormatInt(int64(lease.Token()), 10):
				e.Errorf("the lease of %s has token %d, and the last one is %s", lease.Name(), lease.Token(), token)
			}
		}
	}
	for _, name := range []string{"held", "one", "held", "two"} {
		try(name)
	}
	check()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { try([]string{"held", "batch-" + strconv.Itoa(i)}[i%2]) })
	}
	all.Wait()
	check()
	for range 4 {
		e.Pass(130 * time.Millisecond)
		check()
	}
	for _, lease := range leases {
		_ = lease.Unlock(e.Context()) // the reply may be the one
	}
	_ = c.Close(e.Context())
	e.Pass(400 * time.Millisecond) // what could not be released
}
