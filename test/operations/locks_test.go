//go:build linux

package operations

import (
	"context"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// locks has a stuck holder with a waiter, and a key without a TTL.
func locks(w *world) {
	metrics := " " + w.take(w, alerts, "With `--metrics`, `noonctl elect`, `run` and `cron` export metrics")[0] + " 127.0.0.1:0"
	holder := w.start("noonctl run --lock orders --identity holder --ttl 1h" + metrics + " -- sleep 1000")
	holder.metric(`noonlock_leases_held\{kind="mutex"\} 1`)
	waiter := w.start("noonctl run --lock orders --identity waiter -- sh -c 'echo the waiter works; sleep 1000'")
	name := []string{"NAME", "orders"}
	w.shows("a lock is not released", "`noonctl describe lock NAME` shows the holder and the waiters", name, `^Holder: +holder$`, `^Waiters.*\n.*\n  waiter `)
	w.prints(w.take(w, symptoms, listNames)[0], 0, `^orders +held +mutex +holder `)
	holder.freeze()
	w.must(typed("orders", w.command("a lock is not released", "if that is impossible, `noonctl release NAME`", name...)))
	waiter.logs(`the waiter works`)

	w.cli(w.redis, "SET noonlock:{forgotten}:lock another-program")
	w.must(typed("forgotten", w.command("keys", "A lock without a TTL is never free: `noonctl release NAME` removes it", "NAME", "forgotten")))
	if w.raw.Exists("noonlock:{forgotten}:lock") {
		w.Error("the key without a TTL has not been removed")
	}
}

// slots has a semaphore with one slot.
func slots(w *world) {
	const row = "nobody gets a slot of a semaphore"
	w.start("noonctl run --lock gpus -n 1 --identity one -- sleep 1000")
	name := []string{"NAME", "gpus", "N", "2"}
	w.shows(row, "`noonctl describe lock NAME` shows the holders, and how many slots there are", name, `^Kind: +semaphore 1/1$`, `^Holder: +one `)
	two := w.start("noonctl run --lock gpus -n 1 -- sh -c 'echo two works; sleep 1000'")
	two.logs(`waiting for a lock`)
	w.must(w.command(row, "`noonctl resize NAME -n N`: the stored number counts", name...))
	two.logs(`two works`)
}

// partitions has a replica with two partitions, and another one that has three.
func partitions(w *world) {
	registry := prometheus.NewRegistry()
	client := w.raw.ClientWith(w.raw.Direct(), lockcore.Config{Identity: "one", Registerer: registry})
	share := func(ctx context.Context, n int) error {
		r := testenv.Call(partition.NewRunner(client, "shards", n, func(ctx context.Context, _ int) { <-ctx.Done() }, partition.Config{})).Must(w)
		return r.Run(ctx)
	}
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error)
	go func() { ended <- share(ctx, 2) }()
	name := []string{"NAME", "shards"}
	w.shows("a partition has no leader", "`noonctl describe partition NAME` shows the leader and the token of each partition", name, `^  0 +one +\d`, `^  1 +one +\d`)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(w.Context(), "GET", "/metrics", nil))
	w.exports(answer.Body.String())

	const row = "a replica is refused because it has another number of partitions"
	w.shows(row, "`noonctl describe partition NAME` shows the number in use", name, `^Partitions: +2$`)
	if err := share(w.Context(), 3); !errors.As(err, new(*noonlock.ConfigError)) {
		w.Errorf("with three partitions, Run returns %v", err)
	}
	stop()
	testenv.Must(w, <-ended)
}

// typed runs a command on a terminal, on which a line is typed.
func typed(line, command string) string {
	return "printf '" + line + `\n' | script -qec '` + command + `' /dev/null`
}

// counters sets the token counters of a lock and of an election.
func counters(w *world) {
	const set = "`SET 'noonlock:{NAME}:fence' SEEN`"
	seen := uint64(1) << 52
	w.take(w, tokens, set+". NAME is the name of a lock, `election/NAME` for an election, and `job/NAME` for a job")
	for name, program := range map[string]string{
		"orders":         "noonctl run --lock orders -- printenv NOONLOCK_TOKEN",
		"election/board": "noonctl elect board -- printenv NOONLOCK_TOKEN",
	} {
		w.must(program)
		key := "noonlock:{" + name + "}:fence"
		if !w.raw.Exists(key) {
			w.Fatalf("%s does not exist", key)
		}
		w.cli(w.redis, w.command(tokens, set, "NAME", name, "SEEN", strconv.FormatUint(seen, 10)))
		if got, want := w.must(program), strconv.FormatUint(seen+1, 10)+"\n"; got != want {
			w.Errorf("%s: the next token is %s, want %s", name, got, want)
		}
		if w.raw.PTTL(key) <= 0 {
			w.Errorf("%s has no TTL", key)
		}
	}
}

// cli runs a command that an operator types into redis-cli.
func (w *world) cli(s *servers.RedisServer, command string) any {
	w.Helper()
	rdb := redis.NewClient(testenv.Options(s.Addr()))
	defer rdb.Close()
	var args []any
	for word := range strings.FieldsSeq(strings.ReplaceAll(command, "'", "")) {
		args = append(args, word)
	}
	return testenv.Call(rdb.Do(w.Context(), args...).Result()).Must(w)
}

// delay begins a lock delay by hand.
func delay(w *world) {
	const section = "Choosing the Redis topology"
	log := &testenv.Log{}
	open := func() *lockcore.Mutex {
		client := w.raw.ClientWith(w.raw.Direct(), lockcore.Config{LockDelay: time.Second, Logger: log.Logger()})
		return testenv.Call(client.Mutex("orders", testenv.TTL(time.Second))).Must(w)
	}
	lock := func(m *lockcore.Mutex) {
		lease, err := m.Lock(w.Context()) // waits while grants are delayed
		testenv.Must(w, err)
		_ = lease.Unlock(w.Context()) // it may have expired on a busy machine
	}
	lock(open())
	before := log.Count("grants delayed")
	lock(open()) // another Client alone begins no delay
	if log.Count("grants delayed") != before {
		w.Error("grants were delayed although the server has not lost data")
	}
	key := w.command(section, "for example after a restore, delete the key `noonlock:history` and restart the server or the clients")
	w.cli(w.redis, "DEL "+key)
	lock(open())
	if log.Count("grants delayed") != before+1 {
		w.Errorf("the key was deleted and a client started; the log is\n%s", log)
	}
}
