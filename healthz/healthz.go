package healthz

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/logqueue"
)

// Config configures a Handler. Its zero value is valid.
type Config struct {
	// Timeout is the time after which a check counts as failed. The default is
	// 900 ms, which is below the default probe timeout of Kubernetes, one second.
	Timeout time.Duration

	// Logger receives the reasons of failures. The response of /NAME withholds them.
	Logger logr.Logger
}

// A Handler serves the results of a set of checks: /NAME for all checks, /NAME/CHECK
// for a single check. It is safe for concurrent use.
type Handler struct {
	name   string
	cfg    Config
	checks []*sharedCheck
}

// maxReasons limits the bytes of the reasons in a log line, which then has at most 1 KB.
const maxReasons = 800

// New returns the handler of /name: "livez", "readyz" or "healthz". It adds the check ping, which
// always succeeds. Mount it at "/"+name and "/"+name+"/". An error is a *noonlock.ConfigError.
func New(name string, cfg Config, checkers ...Checker) (*Handler, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 900*time.Millisecond)
	if cfg.Timeout < 0 {
		return nil, &noonlock.ConfigError{Package: "healthz", Field: "Config.Timeout", Value: cfg.Timeout.String(), Rule: "0 (900ms) or positive"}
	}
	lines, err := logqueue.New(cfg.Logger, nil) // a logger that blocks must not fail a probe
	if err != nil {
		return nil, fmt.Errorf("healthz: %w", err)
	}
	cfg.Logger = lines.Logger()
	h := &Handler{name: name, cfg: cfg, checks: []*sharedCheck{{Checker: Checker{"ping", func(context.Context) error { return nil }}}}}
	for _, c := range checkers {
		const legal = "abcdefghijklmnopqrstuvwxyz0123456789-"
		if strings.Trim(c.Name, legal) != "" || c.Name == "" || h.check(c.Name) != nil {
			return nil, &noonlock.ConfigError{Package: "healthz", Field: "Checker.Name", Value: input.Quote(c.Name), Rule: "lower-case letters, digits and dashes, and unique among the checkers of the handler"}
		}
		if c.Check == nil {
			return nil, &noonlock.ConfigError{Package: "healthz", Field: "Checker.Check of " + c.Name, Value: "nil", Rule: "a function"}
		}
		h.checks = append(h.checks, &sharedCheck{Checker: c})
	}
	return h, nil
}

func (h *Handler) check(name string) *sharedCheck {
	for _, c := range h.checks {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// ServeHTTP answers every method. With ?verbose the answer has one line for each check.
// ?exclude=NAME skips a check and may be repeated.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name == "" {
		h.serveAll(w, r)
		return
	}
	c := h.check(name)
	if c == nil {
		http.NotFound(w, r)
		return
	}
	// The response has the reason of a failure, since only an operator requests a check by name.
	if err := c.run(r.Context(), h.cfg.Timeout); err != nil {
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

func (h *Handler) serveAll(w http.ResponseWriter, r *http.Request) {
	ctx, query := r.Context(), r.URL.Query()
	errs := make([]error, len(h.checks))
	var wg sync.WaitGroup
	for i, c := range h.checks {
		if !slices.Contains(query["exclude"], c.Name) {
			wg.Go(func() { errs[i] = c.run(ctx, h.cfg.Timeout) })
		}
	}
	wg.Wait()
	var lines bytes.Buffer
	var failed []string
	for i, c := range h.checks {
		switch {
		case slices.Contains(query["exclude"], c.Name):
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
		case errs[i] != nil:
			failed = append(failed, c.Name+": "+strings.ReplaceAll(errs[i].Error(), "\n", "; "))
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
	}
	switch {
	case failed != nil:
		failure := strings.Join(failed, "; ")
		if len(failure) > maxReasons {
			failure = strings.ToValidUTF8(failure[:maxReasons], "") + "…"
		}
		h.cfg.Logger.Info("health check failed", "endpoint", h.name, "checks", len(failed), "err", failure)
		http.Error(w, fmt.Sprintf("%s%s check failed", lines.String(), h.name), http.StatusInternalServerError)
	case query.Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", lines.String(), h.name)
	default:
		fmt.Fprint(w, "ok")
	}
}

// A Checker is a check with a name of lower-case letters, digits and dashes. Check returns an error if the checked
// thing is not healthy. Several requests share one call, so Check never runs twice at the same time.
type Checker struct {
	Name  string
	Check func(ctx context.Context) error
}

// Overdue fails when work continues for longer than tolerance after it had to stop:
// because its lease has ended, so that another replica may do the same work, or because
// its drain is over. Use it for liveness, since a restart ends the work.
//
// check is the Check of an election.LeaderElector (it reports what client-go's
// LeaderHealthzAdaptor reports) or a singleton.Runner.
func Overdue(name string, check func(tolerance time.Duration) error, tolerance time.Duration) Checker {
	return Checker{name, func(context.Context) error { return check(tolerance) }}
}

// Ready fails when ready returns an error. ready is the Ready of a singleton.Runner or an
// election.LeaderElector. Use it for readiness, never for liveness. Ready proves more than a PING: a
// server may answer a PING while it refuses every other request.
func Ready(name string, ready func() error) Checker {
	return Checker{name, func(context.Context) error { return ready() }}
}

// Staleness fails when the last success is older than maxAge. It also fails if the last success is more than maxAge
// in the future, which means that a clock is wrong. Use it neither for liveness nor for readiness: a job that fails
// on every replica is no reason to restart a replica or to remove it from a load balancer.
func Staleness(name string, last func() time.Time, maxAge time.Duration) Checker {
	return Checker{name, func(context.Context) error {
		at := last()
		age := time.Since(at)
		switch {
		case at.IsZero():
			return errors.New("healthz: no success yet")
		case age > maxAge:
			return fmt.Errorf("healthz: the last success is %s old; at most %s is allowed", age.Truncate(time.Second), maxAge)
		case age < -maxAge: // -age > maxAge would be wrong: the least Duration has no positive counterpart
			return fmt.Errorf("healthz: the last success is %s in the future, so its age is unknown; a clock is wrong", time.Until(at).Truncate(time.Second))
		}
		return nil
	}}
}

// A sharedCheck is a Checker and its call in progress. Requests share the call, so a check that hangs is called once.
type sharedCheck struct {
	Checker
	mu      sync.Mutex
	pending *result // nil if no call is in progress
}

type result struct {
	done chan struct{}
	err  error
}

// run calls the check, or waits for the call in progress.
func (c *sharedCheck) run(ctx context.Context, timeout time.Duration) error {
	c.mu.Lock()
	r := c.pending
	if r == nil {
		r = &result{done: make(chan struct{}), err: errors.New("healthz: the check called runtime.Goexit")}
		c.pending = r
		go c.call(context.WithoutCancel(ctx), timeout, r)
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-time.After(timeout):
		return fmt.Errorf("healthz: no answer within %s", timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *sharedCheck) call(ctx context.Context, timeout time.Duration, r *result) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			r.err = fmt.Errorf("healthz: the check panicked: %v", value)
		}
		c.mu.Lock()
		c.pending = nil
		c.mu.Unlock()
		close(r.done)
	}()
	r.err = c.Check(ctx)
}
