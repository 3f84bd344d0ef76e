package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// health answers /livez and /readyz. Alive is a process that answers at all: it
// must not be restarted because Redis or the database is away.
type health struct {
	mu     sync.Mutex
	checks []check
}

type check struct {
	name string
	ask  func(context.Context) error
}

// askWithin bounds one answer of Redis or the database, below the timeout of the
// usual probes.
const askWithin = 900 * time.Millisecond

// set says whom to ask about a name, in place of whom was asked before.
func (h *health) set(name string, ask func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.checks {
		if h.checks[i].name == name {
			h.checks[i].ask = ask
			return
		}
	}
	h.checks = append(h.checks, check{name, ask})
}

// handler tells that the replica is not ready from when stopping is closed.
func (h *health) handler(stopping <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, request *http.Request) {
		report, ready := h.report(request.Context())
		select {
		case <-stopping:
			report, ready = report+"stopping\n", false
		default:
		}
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, report)
	})
	return mux
}

// report asks everybody at once and writes a line for each.
func (h *health) report(ctx context.Context) (text string, ready bool) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	h.mu.Lock()
	checks := slices.Clone(h.checks)
	h.mu.Unlock()
	answers := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { answers[i] = c.ask(ctx) })
	}
	wg.Wait()
	var b strings.Builder
	ready = true
	for i, c := range checks {
		if answers[i] != nil {
			ready = false
			fmt.Fprintf(&b, "%s: not ready: %s\n", c.name, strings.ReplaceAll(answers[i].Error(), "\n", "; "))
			continue
		}
		fmt.Fprintf(&b, "%s: ok\n", c.name)
	}
	return b.String(), ready
}
