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

	"github.com/noonlock/noonlock/internal/logqueue"
)

// Config is how a handler works. Its zero value is a working default.
type Config struct {
	// Timeout is how long a check may take before it counts as failed. Default
	// 900 ms, below the one second of a probe that says nothing else.
	Timeout time.Duration

	// Logger gets the reasons of failures, which the root endpoints withhold.
	Logger logr.Logger
}

// ErrConfig is what every *ConfigError is.
var ErrConfig = errors.New("healthz: refused")

// ConfigError refuses an input. It is ErrConfig.
type ConfigError struct {
	Field, Value, Rule string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("healthz: %s is %s; it must be %s", e.Field, e.Value, e.Rule)
}

// Is reports true for ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// A Handler answers for one set of checks: /NAME for all of them, /NAME/CHECK for
// one. It is safe for concurrent use.
type Handler struct {
	name     string
	cfg      Config
	checkers []*asked
}

const defaultTimeout = 900 * time.Millisecond

// New returns the handler of /name: "livez", "readyz" or "healthz". Ping is added
// to the checkers. Mount it at "/"+name and "/"+name+"/". The error is a
// *ConfigError.
func New(name string, cfg Config, checkers ...Checker) (*Handler, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.Timeout < 0 {
		return nil, &ConfigError{"Config.Timeout", cfg.Timeout.String(), "0 (900ms) or positive"}
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
			return nil, &ConfigError{"Checker.Check of " + c.Name, "nil", "a function"}
		}
		if slices.ContainsFunc(h.checkers, func(other *asked) bool { return other.Name == c.Name }) {
			return nil, &ConfigError{"Checker.Name", strconv.Quote(c.Name), "of no other checker of the handler"}
		}
		h.checkers = append(h.checkers, &asked{Checker: c})
	}
	return h, nil
}

func checkName(field, name string) error {
	legal := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' }
	if name == "" || len(name) > 63 || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return &ConfigError{field, strconv.Quote(name), "1 to 63 lower-case letters, digits and dashes"}
	}
	return nil
}

// ServeHTTP answers GET and HEAD. With ?verbose each check has a line, with
// ?exclude=NAME (any number) a check is left out.
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

// serveOne answers for one check, with its reason: who may ask for it by name is
// an operator.
func (h *Handler) serveOne(w http.ResponseWriter, r *http.Request, name string) {
	at := slices.IndexFunc(h.checkers, func(c *asked) bool { return c.Name == name })
	if at < 0 {
		http.NotFound(w, r)
		return
	}
	if err := h.ask(r.Context(), h.checkers[at]); err != nil {
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
			wg.Go(func() { errs[i] = h.ask(ctx, c) })
		}
	}
	wg.Wait()

	var lines bytes.Buffer
	failed := []any{}
	for i, c := range h.checkers {
		switch {
		case excluded[c.Name]:
			delete(excluded, c.Name)
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
		case errs[i] != nil:
			failed = append(failed, c.Name, errs[i].Error())
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
	}
	if len(excluded) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(excluded))
	}
	if len(failed) > 0 {
		h.cfg.Logger.Info("health check failed", append([]any{"check", h.name}, failed...)...)
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

// asked is a checker and the asking of it that is under way, if one is: a check
// that hangs is asked once, however often it is probed.
type asked struct {
	Checker
	mu      sync.Mutex
	pending *answer
}

type answer struct {
	done chan struct{}
	err  error
}

func (h *Handler) ask(ctx context.Context, c *asked) error {
	c.mu.Lock()
	a := c.pending
	if a == nil {
		a = &answer{done: make(chan struct{})}
		c.pending = a
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.Timeout)
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
			a.err = c.Check(asking)
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
