package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

var (
	bin string // folder of the workers' programs
	// plain builds the worker as it is.
	plain = sync.OnceValues(func() (string, error) { return build("worker", "") })
)

func TestMain(m *testing.M) {
	logging.Disable()
	code := 1
	var err error
	if bin, err = os.MkdirTemp("", "noonlock-chaos-bin-"); err == nil {
		code = m.Run()
		_ = os.RemoveAll(bin)
	}
	os.Exit(code)
}

// build builds the worker, with other sources if overlay is a file for go build.
func build(name, overlay string, flags ...string) (string, error) {
	path := filepath.Join(bin, name)
	flags = append([]string{"build", "-buildvcs=false", "-overlay=" + overlay, "-o", path}, flags...)
	cmd := exec.Command("go", append(flags, "./worker")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
}

// options returns DURATION and SEED.
func options(t *testing.T) (lasts time.Duration, seed uint64) {
	t.Helper()
	lasts = testenv.Call(time.ParseDuration(cmp.Or(os.Getenv("DURATION"), "10s"))).Must(t)
	seed = rand.Uint64()
	if text := os.Getenv("SEED"); text != "" {
		seed = testenv.Call(strconv.ParseUint(text, 10, 64)).Must(t)
	}
	return lasts, seed
}

// The environment variables TOPOLOGY, SEED and DURATION select what TestChaos does: make chaos sets them.
func TestChaos(t *testing.T) {
	lasts, seed := options(t)
	names := slices.Sorted(maps.Keys(topologies))
	if text := os.Getenv("TOPOLOGY"); text != "" {
		names = strings.Split(text, ",")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := topologies[name]
			if start == nil {
				t.Fatalf("no topology %q", name)
			}
			binary := testenv.Call(plain()).Must(t)
			cfg := history.Config{
				Seed: seed, TTL: time.Second, Slots: 3, Parts: 6, Holds: 30, Slow: 3 * time.Millisecond,
				Every: max(time.Second, (lasts / 900).Truncate(time.Millisecond)),
				Kinds: []string{history.Mutex, history.RW, history.Semaphore, history.Election, history.Partitions, history.Job},
			}
			if name == "delay" {
				// In a planned failover, a holder may have moved to the new primary while another Client asks the old one.
				// A lease with a short TTL expires there too early, as docs/SAFETY.md says.
				cfg.TTL = 4 * time.Second
			}
			top := start(t, cfg.TTL)
			if top.quorum {
				cfg.Kinds = []string{history.Mutex, history.Election}
			}
			w := newWorld(t, binary, top, 5, false, cfg)
			v := w.run(name, lasts)
			for _, found := range v.Serious() {
				t.Error(found)
			}
			if t.Failed() {
				t.Logf("history: %s; again: make chaos TOPOLOGY=%s SEED=%d DURATION=%v", w.folder, name, seed, lasts)
			}
		})
	}
}

// run has faults for a while, and then judges what happened.
func (w *world) run(name string, lasts time.Duration) judge.Verdict {
	w.t.Helper()
	retry.Sleep(w.t.Context(), 3*w.base.TTL+w.top.delay, nil) // a calm time, in which waiters have an order
	ctx, cancel := context.WithTimeout(w.t.Context(), lasts)
	defer cancel()
	newNemesis(w, w.base.Seed).run(ctx, 3)
	retry.Sleep(w.t.Context(), 4*w.base.TTL+w.top.delay, nil)
	if w.base.Library == "" {
		w.finish()
	}
	v := w.judge()
	servers.Count(w.t, "%s", summary(name, w.base.Seed, v))
	return v
}

// The environment variable HISTORY is the folder of a run that is judged again. If PICTURE is the name of a file, it gets
// a picture of 12 s of the lock that all workers use, from the second FROM on.
func TestAgain(t *testing.T) {
	folder := os.Getenv("HISTORY")
	if folder == "" {
		t.Skip("HISTORY is not set")
	}
	events := testenv.Call(history.Read(folder)).Must(t)
	if path := os.Getenv("PICTURE"); path != "" {
		file := testenv.Call(os.Create(path)).Must(t)
		defer file.Close()
		from := testenv.Call(time.ParseDuration(os.Getenv("FROM"))).Must(t)
		picture := testenv.Call(os.ReadFile("../../docs/floors.svg")).Must(t)
		_, style, _ := strings.Cut(string(picture), "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		judge.Draw(file, style, events, "mutex/orders/0", events[0].T+from.Nanoseconds(), 12)
	}
	v := judge.Judge(events)
	t.Log(summary(folder, 0, v))
	for _, found := range v.Violations {
		t.Log(found)
	}
}

func summary(name string, seed uint64, v judge.Verdict) string {
	faults, leases := 0, 0
	for _, n := range v.Faults {
		faults += n
	}
	for _, n := range v.Leases {
		leases += n
	}
	return fmt.Sprintf("%s, seed %d: %d faults of %d kinds, %d leases of %d kinds, %d lost and reported, "+
		"%d stale writes refused, broken: %v",
		name, seed, faults, len(v.Faults), leases, len(v.Leases), v.Lost, v.Refused, v.Rules())
}
