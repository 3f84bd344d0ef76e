package lockcore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// The server's time for an entry of an owner with 2,000 entries is at most 1.5 times that of
// an owner with 10.
func TestFault65_ServerTimeOfManyEntries(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "slowlog-log-slower-than 0", "slowlog-max-len 10000")
	for _, mode := range []string{"w", "r"} {
		attempt := func(i int) string { return fmt.Sprintf("ns1:ALIVE.%d.u.%s/me id", i, mode) }
		e.constantTime(mode, func(i int) scriptRun {
			return scriptRun{"owned_acquire", []any{attempt(i), 600000 + i, "try"}}
		}, func(i int) []scriptRun {
			return []scriptRun{
				{"owned_acquire", []any{attempt(i), 3000000, "try"}},
				{"owned_renew", []any{attempt(i), 3000000}},
				{"owned_leave", []any{attempt(i), 0}},
			}
		})
	}
}

// A writer waits for 2,000 readers, each with an owner of its own. The server's time for each of its
// requests is at most 1.5 times that with 10 readers.
//
// Caught mutant: the script of a writer reads the entries of all readers.
func TestFault65_ServerTimeOfAWriterAmongReaders(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "slowlog-log-slower-than 0", "slowlog-max-len 10000")
	e.constantTime("a writer", func(i int) scriptRun {
		return scriptRun{"owned_acquire", []any{fmt.Sprintf("ns1:ALIVE.%d.u.r/reader-%d id", i, i), 600000 + i, "try"}}
	}, func(i int) []scriptRun {
		writer := fmt.Sprintf("ns1:OTHER.%d.u.w/writer id", i)
		return []scriptRun{
			{"owned_acquire", []any{writer, 60000, "try"}},
			{"owned_acquire", []any{writer, 60000, "join"}},
			{"owned_acquire", []any{writer, 60000, "look"}},
			{"owned_leave", []any{writer, 0}},
		}
	})
}

// A scriptRun is one run of a script.
type scriptRun struct {
	name string
	args []any
}

// constantTime asserts that requests take the server at most 1.5 times as long at a lock with 2,000
// entries as at one with 10. Both are measured in turn, and the medians of single requests compared.
func (e *env) constantTime(what string, entry func(i int) scriptRun, requests func(i int) []scriptRun) {
	e.Helper()
	const few, many, rounds, repeats = 10, 2000, 20, 10
	sha := map[string]string{}
	pipeline := func(key string, runs []scriptRun) {
		e.Helper()
		_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
			for _, r := range runs {
				if sha[r.name] == "" {
					source, err := lockcore.ScriptSource(r.name)
					must(e, err)
					sha[r.name] = e.Raw.ScriptLoad(e.Context(), source).Val()
				}
				keys := e.scriptKeys(key)
				if r.name == "owned_renew" {
					keys = keys[:1]
				}
				p.EvalSha(e.Context(), sha[r.name], keys, argv(r.name, r.args...)...)
			}
			return nil
		})
		must(e, err)
	}
	key := func(entries int) string { return fmt.Sprint(what, entries) }
	times := map[int][][]time.Duration{} // of each request
	for _, entries := range []int{few, many} {
		var runs []scriptRun
		for i := range entries {
			runs = append(runs, entry(1000+i))
		}
		pipeline(key(entries), runs)
		times[entries] = make([][]time.Duration, len(requests(0)))
	}
	for range repeats {
		for entries, of := range times {
			var runs []scriptRun
			for i := range rounds {
				runs = append(runs, requests(i)...)
			}
			must(e, e.Raw.Do(e.Context(), "slowlog", "reset").Err())
			pipeline(key(entries), runs)
			calls, err := e.Raw.SlowLogGet(e.Context(), 10000).Result()
			must(e, err)
			// Some servers also list the commands that scripts call.
			calls = slices.DeleteFunc(calls, func(call redis.SlowLog) bool { return call.Args[0] != "evalsha" })
			if len(calls) != len(runs) {
				e.Fatalf("%s: %d requests were measured, want %d", what, len(calls), len(runs))
			}
			slices.Reverse(calls) // the newest was first
			for i, call := range calls {
				of[i%len(of)] = append(of[i%len(of)], call.Duration)
			}
		}
	}
	sum := func(entries int) (all time.Duration) {
		for _, ds := range times[entries] {
			slices.Sort(ds)
			all += ds[len(ds)/2]
		}
		return all
	}
	if of, than := sum(many), sum(few); 2*of > 3*than {
		e.Errorf("%s: the server needs %v with 2,000 entries, and %v with 10, want at most 1.5 times that", what, of, than)
	} else {
		e.Logf("%s: %v with 2,000 entries, %.2f times that with 10", what, of, float64(of)/float64(than))
	}
}
