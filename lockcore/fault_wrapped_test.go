package lockcore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// The server refuses the writes of scripts for five seconds, in the words of Redis 6.2.16 and of
// 7.0. Held leases survive, a waiter keeps its place, and a release is repeated. Only new locks
// are refused, if the server cannot say how long it will lack something.
//
// Caught mutants: the code in the middle of the text is not looked for; NOREPLICAS is not
// exhaustion; a waiter that looks, or a release, is not repeated after one of the codes.
func TestFault74_RefusalsInScripts(t *testing.T) {
	const background = " because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error."
	for code, c := range map[string]struct {
		inner, later string // the texts of the same refusal inside of 6.2's, and of 7.0
		lasting      bool   // a new lock is refused
	}{
		"READONLY": {"-READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica.", false},
		"OOM":      {"-OOM command not allowed when used memory > 'maxmemory'.", "OOM command not allowed when used memory > 'maxmemory'.", true},
		"NOREPLICAS": {
			"-NOREPLICAS Not enough good replicas to write.", "NOREPLICAS Not enough good replicas to write.", true,
		},
		"MISCONF Redis": {
			"-MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. Commands that may modify the data set are disabled," + background,
			"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled," + background,
			true,
		},
		"MISCONF Errors": {
			"-MISCONF Errors writing to the AOF file: No space left on device", "MISCONF Errors writing to the AOF file: No space left on device", true,
		},
		// 6.2 does not wrap this one, because it runs no script then.
		"BUSY": {"", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", false},
	} {
		texts := map[string]func(sha string) string{
			"7.0": func(sha string) string { return c.later + " script: " + sha + ", on @user_script:12." },
			"6.2": func(sha string) string {
				return "ERR Error running script (call to f_" + sha + "): @user_script:12: @user_script: 12: " + c.inner
			},
		}
		if c.inner == "" {
			texts = map[string]func(string) string{"all": func(string) string { return c.later }}
		}
		for version, text := range texts {
			t.Run(code+"/"+version, func(t *testing.T) {
				inBubbleAllKinds(t, func(e *env) { refusesScripts(e, code, text, c.lasting) })
			})
		}
	}
}

func refusesScripts(e *env, code string, text func(sha string) string, lasting bool) {
	e.Helper()
	a, b := e.Client("a"), e.Client("b")
	lease, kept := e.try(e.mutex(a, "orders", ttl(9*time.Second))), e.try(e.mutex(a, "kept", ttl(9*time.Second)))
	waiter, second := e.queued(e.mutex(b, "orders", ttl(3*time.Second))), e.queued(e.mutex(b, "kept", ttl(3*time.Second)))

	var refuses atomic.Bool
	var looks atomic.Int64
	e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if !refuses.Load() || cmd != "EVALSHA" && cmd != "EVAL" || args[1] == "0" { // what writes nothing is not refused
			return false
		}
		for _, arg := range args {
			if strings.HasPrefix(arg, "look ") {
				looks.Add(1)
			}
		}
		sha := strings.ToLower(args[0])
		if cmd == "EVAL" {
			sum := sha1.Sum([]byte(args[0])) //nolint:gosec // as Redis does
			sha = hex.EncodeToString(sum[:])
		}
		p.WriteError(text(sha))
		return true
	})
	e.Cleanup(func() { refuses.Store(false) })
	refuses.Store(true)
	released := make(chan error, 1)
	go func() { released <- lease.Unlock(e.Context()) }()
	isRefusal := func(call string, err error) {
		if want, _, _ := strings.Cut(code, " "); !redis.HasErrorPrefix(err, want) {
			e.Errorf("%s: %v, want the server's refusal", call, err)
		}
		mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrUnknown)
	}
	_, err := e.mutex(a, "vacant", ttl(time.Second)).TryLock(e.Context())
	isRefusal("TryLock", err)
	var late *pending
	if lasting {
		_, err = e.mutex(a, "fresh", ttl(9*time.Second)).Lock(e.Context())
		isRefusal("Lock", err)
	} else {
		late = e.goLock(e.mutex(a, "fresh", ttl(9*time.Second)))
	}
	e.Pass(5 * time.Second)
	if looks.Load() < 2 {
		e.Errorf("waiters looked %d times", looks.Load())
	}
	select {
	case err := <-released:
		e.Fatalf("Unlock returned during the fault: %v", err)
	default:
	}
	refuses.Store(false)
	must(e, <-released)
	e.unlock(waiter.granted())
	if err := kept.Context().Err(); err != nil {
		e.Errorf("the other lease ended: %v", context.Cause(kept.Context()))
	}
	e.unlock(kept)
	e.unlock(second.granted())
	if late != nil {
		e.unlock(late.granted())
	}
	if left := fmt.Sprint(e.Raw.Keys(e.Context(), "noonlock:{vacant}:*").Val()); left != "[]" {
		e.Errorf("the refused acquire left %s", left)
	}
}
