package lockcore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

// roleVariable makes this test binary an actor: a process with a Client. It reads orders from its standard input,
// one per line, and writes answers to its standard output. It ends with its input. serverVariable is the address or URL of
// the server, and kindVariable is the kind of its locks. Their owner is its identity.
const (
	roleVariable   = "LOCKCORE_TEST_ROLE"
	serverVariable = "LOCKCORE_TEST_SERVER"
	kindVariable   = "LOCKCORE_TEST_KIND"
)

func playRole(identity string) int {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(serverVariable)})
	cfg := lockcore.Config{Identity: identity, Logger: lockcore.Discard}
	c, err := lockcore.New(rdb, cfg)
	if options, isURL := redisurl.Parse(os.Getenv(serverVariable)); isURL == nil {
		c, err = lockcore.NewFromOptions(options, cfg)
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var lease *lockcore.Lease
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(obey(c, &lease, strings.Fields(in.Text())))
	}
	return 0
}

func obey(c *lockcore.Client, lease **lockcore.Lease, order []string) string {
	ctx := context.Background()
	switch order[0] {
	case "try", "lock":
		ms, err := strconv.Atoi(order[2])
		if err != nil {
			return "error " + err.Error()
		}
		m, err := lockOf(c, os.Getenv(kindVariable), order[1], c.Identity(), ttl(time.Duration(ms)*time.Millisecond))
		if err != nil {
			return "error " + err.Error()
		}
		take := m.TryLock
		if order[0] == "lock" {
			take = m.Lock
		}
		if *lease, err = take(ctx); err != nil {
			return "error " + err.Error()
		}
		return fmt.Sprint("locked ", (*lease).Token())
	case "waiters": // acquire and release in the background, each for an owner of its own
		count, err := strconv.Atoi(order[2])
		if err != nil {
			return "error " + err.Error()
		}
		for i := range count {
			m, err := lockOf(c, os.Getenv(kindVariable), order[1], fmt.Sprint(c.Identity(), "-", i), ttl(10*time.Second))
			if err != nil {
				return "error " + err.Error()
			}
			go func() {
				if lease, err := m.Lock(ctx); err == nil {
					_ = lease.Unlock(ctx) // the test looks at the server
				}
			}()
		}
		return "waiting"
	case "close":
		if err := c.Close(ctx); err != nil {
			return "error " + err.Error()
		}
		return "closed"
	case "check":
		if err := (*lease).Context().Err(); err != nil && (*lease).Remaining() == 0 {
			return "ended"
		}
		return "valid"
	case "unlock":
		switch err := (*lease).Unlock(ctx); {
		case err == nil:
			return "unlocked"
		case errors.Is(err, lockcore.ErrNotHeld):
			return "not-held"
		default:
			return "error " + err.Error()
		}
	}
	return "error no such order"
}

// An actor is such a process, as the test sees it.
type actor struct {
	*roleProcess
	t testing.TB
}

func (e *env) startActor(identity string) *actor {
	e.Helper()
	return &actor{e.startProcess(roleVariable+"="+identity, serverVariable+"="+e.Real.Addr(), kindVariable+"="+e.kindFor(anyName)), e.T}
}

// An answer of an actor: its word, and the details.
type answer struct {
	t         testing.TB
	text, arg string
}

func (a *actor) answer() answer {
	a.t.Helper()
	text, arg, _ := strings.Cut(a.Next(), " ")
	return answer{a.t, text, arg}
}

func (a *actor) ask(order string) answer {
	a.t.Helper()
	a.Send(order)
	return a.answer()
}

func (a answer) number(want string) uint64 {
	a.t.Helper()
	n, err := strconv.ParseUint(a.arg, 10, 64)
	if a.text != want || err != nil {
		a.t.Fatalf("the process answered %q %q, want %s and a number", a.text, a.arg, want)
	}
	return n
}
