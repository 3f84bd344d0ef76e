package bench_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// A command is sent to the server.
type command []any

// A path is one way through a script, for the i-th of some names.
type path struct {
	name   string
	before func(i int) []command // not counted
	call   func(i int) command
}

// instructions: what the server executes outside of the kernel, as callgrind counts it. The count does not depend
// on other load of the machine.
func instructions(x *bench) {
	const names = 99
	x.underCallgrind()
	s := x.serve(library{})
	calls := x.table("Calls of scripts", "path")
	for _, p := range x.paths(s) {
		count := func(commands func(i int) []command) float64 {
			x.check(s.rdb.FlushDB(x.ctx()).Err())
			s.send(commands(names)) // the first call loads code
			return s.instructions(func() {
				for i := range names {
					s.send(commands(i))
				}
			})
		}
		// The commands before alternate with the calls, as the grant to a waiter ends after a second.
		both := count(func(i int) []command { return append(p.before(i), p.call(i)) })
		calls.add(p.name, "instructions", (both-count(p.before))/names)
	}
	cycles := x.table("Lock and unlock", "library")
	for _, l := range []library{raw, redisLock, rueidisLock, noonlock} {
		on := x.serve(l)
		holds := []hold{x.open(l, on, options{}).lock(x.ctx(), "bench")}
		x.slice(holds, length())
		var n float64
		all := on.instructions(func() { n = x.slice(holds, 3*length()) })
		cycles.add(l.name, "instructions", all/n)
	}
}

// underCallgrind lets the servers of the row run under callgrind.
func (x *bench) underCallgrind() {
	if _, err := exec.LookPath("valgrind"); err != nil {
		x.b.Skip("needs valgrind, which is not installed")
	}
	program := filepath.Join(x.b.TempDir(), "redis-server")
	const text = "#!/bin/sh\nexec valgrind -q --tool=callgrind redis-server \"$@\" --hz 1 --dynamic-hz no\n"
	x.check(os.WriteFile(program, []byte(text), 0o700)) //nolint:gosec // a program
	x.b.Setenv("NOONLOCK_REDIS_SERVER", program)
}

// instructions returns how many instructions the server executes while f runs.
func (s *server) instructions(f func()) float64 {
	control := func(flag string) {
		if out, err := exec.Command("callgrind_control", flag, strconv.Itoa(s.redis.Pid())).CombinedOutput(); err != nil {
			s.x.b.Fatalf("callgrind_control: %v\n%s", err, out)
		}
	}
	control("--zero")
	f()
	control("--dump")
	dumps, err := filepath.Glob(filepath.Join(s.redis.Dir(), "callgrind.out.*.*"))
	s.x.check(err)
	newest := slices.MaxFunc(dumps, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	text, err := os.ReadFile(newest)
	s.x.check(err)
	s.x.check(os.Remove(newest))
	_, sum, _ := strings.Cut(string(text), "\nsummary: ")
	n, err := strconv.ParseFloat(strings.Fields(sum)[0], 64)
	s.x.check(err)
	return n
}

func (s *server) send(commands []command) {
	for _, c := range commands {
		s.x.check(s.rdb.Do(s.x.ctx(), c...).Err())
	}
}

// paths loads the scripts, and returns what is counted.
func (x *bench) paths(s *server) (paths []path) {
	const ttl, keep, channels = 30000, 7200000, "noonlock:ch:"
	load := func(files fs.FS, name string) func(keys []any, args ...any) command {
		l := wire.NewLoader(files)
		script := l.Script(name)
		x.check(l.Err())
		sha, err := s.rdb.ScriptLoad(x.ctx(), wire.Naming(script.Source())).Result()
		x.check(err)
		return func(keys []any, args ...any) command {
			return slices.Concat(command{"evalsha", sha, len(keys)}, keys, args, command{"100001"}) // the id of the request
		}
	}
	id := func(process string, n int) string { return strings.Repeat(process, 26) + "." + strconv.Itoa(n) }
	keys := func(i int, parts ...string) (all []any) {
		for _, part := range parts {
			all = append(all, fmt.Sprintf("noonlock:{orders%02d}:%s", i, part))
		}
		return all
	}
	none := func(int) []command { return nil }
	for _, k := range []struct {
		name, scripts, value string
		size                 []string                        // the key
		args                 func(ttl, keep, rest any) []any // of an acquire, after the value
	}{
		{"mutex", "mutex", "nl1:%s/host-1", nil, func(ttl, keep, rest any) []any { return []any{ttl, rest, keep} }},
		{"RWMutex, write", "owned", "ns1:%s.w/- host-1", nil, func(ttl, keep, rest any) []any { return []any{ttl, keep, rest, ""} }},
		{"Semaphore of 1", "owned", "np1:%s.p/- host-1", []string{"size"}, func(ttl, keep, rest any) []any { return []any{ttl, keep, rest, "", 1} }},
	} {
		acquires, leaves, renews := load(lock.LuaFiles, k.scripts+"_acquire"), load(lock.LuaFiles, k.scripts+"_leave"), load(lock.LuaFiles, k.scripts+"_renew")
		acquire := func(mode, process string, n int) func(int) command {
			parts := append([]string{"lock", "fence", "queue", "seen", "tomb:" + id(process, n)}, k.size...)
			args := append([]any{fmt.Sprintf(k.value, id(process, n))}, k.args(ttl, keep, mode+" "+channels)...)
			return func(i int) command { return acquires(keys(i, parts...), args...) }
		}
		release := func(i int) command {
			parts := []string{"lock", "fence", "queue", "seen"}
			if k.size != nil {
				parts = append(parts, "tomb:"+id("A", 0), "size")
			}
			return leaves(keys(i, parts...), fmt.Sprintf(k.value, id("A", 0)), fmt.Sprint(keep, " 0 ", channels))
		}
		held := func(waiters int) func(int) []command { // by A, and the waiters are of two processes
			return func(i int) []command {
				all := []command{acquire("join", "A", 0)(i)}
				for w := range waiters {
					all = append(all, acquire("join", string("BC"[w%2]), w)(i))
				}
				return all
			}
		}
		passed := func(i int) []command { return append(held(10)(i), release(i)) }
		paths = append(paths,
			path{k.name + ": acquire, free", none, acquire("join", "A", 0)},
			path{k.name + ": acquire, held: join, no queue", held(0), acquire("join", "B", 0)},
			path{k.name + ": acquire, held: join, 10 ahead", held(10), acquire("join", "B", 10)},
			path{k.name + ": acquire, held: try", held(0), acquire("try", "B", 0)},
			path{k.name + ": look, held by another, 9 behind", held(10), acquire("look", "B", 0)},
			path{k.name + ": look, held by me, 9 behind", passed, acquire("look", "B", 0)},
			path{k.name + ": renewal", held(0), func(i int) command {
				return renews(keys(i, "lock"), fmt.Sprintf(k.value, id("A", 0)), ttl)
			}},
			path{k.name + ": release, no queue", held(0), release},
			path{k.name + ": release, 1 waiter", held(1), release},
			path{k.name + ": release, 10 waiters", held(10), release})
	}
	claims, completes := load(os.DirFS("../singleton/internal/ledger"), "job_claim"), load(os.DirFS("../singleton/internal/ledger"), "job_complete")
	const tick, channel = 1700000060000, "noonlock:ch:job:report"
	claim := func(process string) func(int) command {
		return func(i int) command {
			return claims(keys(i, "job", "runs", "fence", "tomb:"+id(process, 0), "payloads"), id(process, 0), tick, "definition", "ledger",
				fmt.Sprint("0 ", ttl, " ", tick-60000, " 3 100  ", channel, " host-1"))
		}
	}
	ledger := func(last int, open string) func(int) []command {
		return func(i int) []command {
			return []command{{"hset", keys(i, "job")[0], "v", 1, "last", last, "open", open, "def", "definition", "id", "ledger", "retain", 86400000}}
		}
	}
	due := ledger(tick-60000, "")
	held := func(i int) []command { return append(due(i), claim("A")(i)) }
	return append(paths,
		path{"job: claim of a tick", due, claim("A")},
		path{"job: claim, held by another", held, claim("B")},
		path{"job: claim, ended", ledger(tick, ""), claim("B")},
		path{"job: completion", held, func(i int) command {
			return completes(keys(i, "job", "runs", "payloads"), id("A", 0), tick, "succeeded", "", 100, "1", 20, channel)
		}})
}
