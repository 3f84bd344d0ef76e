package statusz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// actionHeader is a header that each action must have. Scripts of other sites cannot set it without a preflight
// request, which is refused.
const actionHeader = "Noonlock-Action"

const actTimeout = 20 * time.Second

// An action is a request of a user of the page.
type action struct {
	Action string `json:"action"` // one of overview.Verbs, or release
	Name   string `json:"name"`
	Tick   int64  `json:"tick"`  // key of overview.Action.Run
	Token  string `json:"token"` // greatest token of the thing that the user has seen
	To     string `json:"to"`    // see overview.Action
	Reason string `json:"reason"`
}

var (
	errToken  = errors.New("statusz: the token is not a number")
	errLeader = errors.New("statusz: resign needs the token of the leader")
)

// do carries out an action, and returns the kind of its thing. ok is false for an unknown action.
func (p *Page) do(ctx context.Context, a action) (kind overview.Kind, ok bool, err error) {
	if a.Action == "release" {
		return overview.Locks, true, p.release(ctx, a)
	}
	if kind, ok = overview.Verbs[a.Action]; !ok {
		return 0, false, nil
	}
	change := overview.Action{Verb: a.Action, Name: a.Name, To: a.To}
	if a.Tick != 0 {
		change.Run = singleton.RunOf(a.Tick)
	}
	if kind == overview.Elections {
		if change.Token, err = seenToken(a); err == nil && change.Token == 0 {
			err = errLeader // with 0, any leader would resign
		}
	}
	if err == nil {
		_, err = change.Do(ctx, p.reader.client)
	}
	return kind, true, err
}

// release releases a lock for the holders that the user has seen. Later holders have greater tokens.
func (p *Page) release(ctx context.Context, a action) error {
	token, err := seenToken(a)
	if err != nil {
		return err
	}
	seen, err := p.reader.client.Inspect(ctx, a.Name)
	if err != nil {
		return err
	}
	foreign := seen.Kind == lockcore.LockForeign && token == 0 // a key of another program, which has no tokens
	seen.Holders = slices.DeleteFunc(seen.Holders, func(h lockcore.Holder) bool { return !foreign && (h.Token > token || h.Token == 0) })
	if len(seen.Holders) == 0 {
		return lockcore.ErrChanged
	}
	_, err = p.reader.client.ForceRelease(ctx, seen)
	return err
}

func seenToken(a action) (uint64, error) {
	token, err := strconv.ParseUint(a.Token, 10, 64)
	if err != nil {
		return 0, errToken
	}
	return token, nil
}

// act carries out an action that the page itself has sent.
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, reason string) { http.Error(w, "statusz: "+reason, code) }
	switch {
	case !p.cfg.AllowActions:
		refuse(http.StatusForbidden, "this page is read-only")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		refuse(http.StatusMethodNotAllowed, "the method must be POST")
		return
	case !sameOrigin(r) || r.Header.Get(actionHeader) == "":
		refuse(http.StatusForbidden, "the request does not come from this page")
		return
	case r.Header.Get("Content-Type") != "application/json":
		refuse(http.StatusUnsupportedMediaType, "the type must be application/json")
		return
	}
	var a action
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096))
	body.DisallowUnknownFields()
	if err := body.Decode(&a); err != nil {
		refuse(http.StatusBadRequest, "the action is not valid JSON of an action")
		return
	}
	if _, err := body.Token(); !errors.Is(err, io.EOF) {
		refuse(http.StatusBadRequest, "something follows the action")
		return
	}
	by := lockcore.Operator{Reason: a.Reason}
	if p.cfg.Operator != nil {
		by.Who = p.cfg.Operator(r)
	}
	ctx, cancel := context.WithTimeout(lockcore.WithOperator(r.Context(), by), actTimeout)
	defer cancel()
	kind, ok, err := p.do(ctx, a)
	if !ok {
		refuse(http.StatusBadRequest, "the action is unknown")
		return
	}
	p.reader.touch(key{kind, a.Name})
	if err != nil {
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// sameOrigin reports whether a browser sent the request for a page of the same origin. A browser
// sets Sec-Fetch-Site or Origin on every POST, and scripts cannot change them.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}

func codeOf(err error) int {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(lockcore.ErrUnknown, lockcore.ErrNotReplicated): // with this code, the page says that the action may have been done
		return http.StatusGatewayTimeout
	case is(noonlock.ErrConfig, errToken, errLeader):
		return http.StatusBadRequest
	case is(singleton.ErrNoLedger, singleton.ErrNoRun, singleton.ErrNotOpen, election.ErrNoLeader, election.ErrNoCandidate):
		return http.StatusNotFound
	case is(singleton.ErrNotEnded, singleton.ErrSucceeded, singleton.ErrTriggers, election.ErrTermOver, lockcore.ErrChanged):
		return http.StatusConflict
	case lockcore.IsTemporary(err), is(errUnread):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
