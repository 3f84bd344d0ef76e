package healthz

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/logqueue"
)

// Config configures a Handler. Its zero value is valid.
type Config struct {
	// Timeout is how long a check may take before it counts as failed. The default is
	// 900 ms, which is below the default probe timeout of Kubernetes, one second.
	Timeout time.Duration

	// Logger receives the reasons of failures. The root endpoints withhold them.
	Logger logr.Logger
}

// ErrConfig matches every *ConfigError in errors.Is.
var ErrConfig = errors.New("healthz: refused")

// ConfigError reports an invalid argument or configuration field. Its fields are strings: Field
// names the argument or field, Value is its value (text is quoted), and Rule says which values are
// valid. It matches ErrConfig.
type ConfigError = input.ConfigError[refused]

type refused struct{}

func (refused) Refusal() error { return ErrConfig }

// A Handler serves the results of one set of checks: /NAME for all of them, /NAME/CHECK
// for one. It is safe for concurrent use.
type Handler struct {
	name     string
	cfg      Config
	checkers []*probe
}

const defaultTimeout = 900 * time.Millisecond

// New returns the handler of /name: "livez", "readyz" or "healthz". It adds Ping to the
// checkers. Mount it at "/"+name and "/"+name+"/". An error is a *ConfigError.
func New(name string, cfg Config, checkers ...Checker) (*Handler, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.Timeout < 0 {
		return nil, &ConfigError{Field: "Config.Timeout", Value: cfg.Timeout.String(), Rule: "0 (900ms) or positive"}
	}
	// A logger that blocks must not fail a probe.
	lines, err := logqueue.New(cfg.Logger, nil)
	if err != nil {
		return nil, fmt.Errorf("healthz: %w", err)
	}
	cfg.Logger = lines.Logger()
	h := &Handler{name: name, cfg: cfg}
	for _, c := range slices.Concat([]Checker{Ping()}, checkers) {
		if err := checkName("Checker.Name", c.Name); err != nil {
			return nil, err
		}
		if c.Check == nil {
			return nil, &ConfigError{Field: "Checker.Check of " + c.Name, Value: "nil", Rule: "a function"}
		}
		if slices.ContainsFunc(h.checkers, func(other *probe) bool { return other.Name == c.Name }) {
			return nil, &ConfigError{Field: "Checker.Name", Value: input.Quote(c.Name), Rule: "unique among the checkers of the handler"}
		}
		h.checkers = append(h.checkers, &probe{Checker: c})
	}
	return h, nil
}

func checkName(field, name string) error {
	legal := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' }
	if name == "" || len(name) > 63 || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return &ConfigError{Field: field, Value: input.Quote(name), Rule: "1 to 63 lower-case letters, digits and dashes"}
	}
	return nil
}

// ServeHTTP answers GET and HEAD. With ?verbose the answer has one line for each check.
// ?exclude=NAME skips a check and may be repeated.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_, one, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if found && one != "" {
		h.serveOne(w, r, one)
		return
	}
	h.serveAll(w, r)
}

// serveOne answers for one check. The answer includes the reason of a failure, since only
// an operator requests a check by name.
func (h *Handler) serveOne(w http.ResponseWriter, r *http.Request, name string) {
	at := slices.IndexFunc(h.checkers, func(c *probe) bool { return c.Name == name })
	if at < 0 {
		http.NotFound(w, r)
		return
	}
	if err := h.run(r.Context(), h.checkers[at]); err != nil {
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

func (h *Handler) serveAll(w http.ResponseWriter, r *http.Request) {
	excluded := map[string]bool{}
	for _, name := range r.URL.Query()["exclude"] {
		excluded[name] = true
	}
	ctx, errs := r.Context(), make([]error, len(h.checkers))
	var wg sync.WaitGroup
	for i, c := range h.checkers {
		if !excluded[c.Name] {
			wg.Go(func() { errs[i] = h.run(ctx, c) })
		}
	}
	wg.Wait()

	var lines bytes.Buffer
	failed := false
	for i, c := range h.checkers {
		switch {
		case excluded[c.Name]:
			delete(excluded, c.Name)
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
		case errs[i] != nil:
			failed = true
			h.cfg.Logger.Info("health check failed", "endpoint", h.name, "check", c.Name, "err", errs[i])
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
	}
	if len(excluded) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(excluded))
	}
	if failed {
		http.Error(w, fmt.Sprintf("%s%s check failed", lines.String(), h.name), http.StatusInternalServerError)
		return
	}
	if _, verbose := r.URL.Query()["verbose"]; !verbose {
		fmt.Fprint(w, "ok")
		return
	}
	fmt.Fprintf(w, "%s%s check passed\n", lines.String(), h.name)
}

func quoted(names map[string]bool) string {
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, strconv.Quote(name))
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// A probe is a Checker and its call in progress, if there is one. Requests share that
// call, so a check that hangs is called once.
type probe struct {
	Checker
	mu      sync.Mutex
	pending *answer
}

var errExited = errors.New("healthz: the check called runtime.Goexit")

type answer struct {
	done chan struct{}
	err  error
}

func (h *Handler) run(ctx context.Context, c *probe) error {
	c.mu.Lock()
	a := c.pending
	if a == nil {
		a = &answer{done: make(chan struct{})}
		c.pending = a
		checkCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.Timeout)
		go func() {
			defer cancel()
			defer func() {
				if p := recover(); p != nil {
					a.err = fmt.Errorf("healthz: the check panicked: %v", p)
				}
				c.mu.Lock()
				c.pending = nil
				c.mu.Unlock()
				close(a.done)
			}()
			a.err = errExited // unless it returns or panics
			a.err = c.Check(checkCtx)
		}()
	}
	c.mu.Unlock()
	timer := time.NewTimer(h.cfg.Timeout)
	defer timer.Stop()
	select {
	case <-a.done:
		return a.err
	case <-timer.C:
		return fmt.Errorf("healthz: no answer within %s", h.cfg.Timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}
