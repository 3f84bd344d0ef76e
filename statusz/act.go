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

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// actionHeader must be set on an action. Scripts of other sites cannot set it without a preflight
// request, which is refused.
const actionHeader = "Noonlock-Action"

const actTimeout = 20 * time.Second

// An action is what a user of the page wants to be done.
type action struct {
	Action string `json:"action"` // a name of verbs
	Name   string `json:"name"`   // of the job, the election or the lock
	Tick   int64  `json:"tick"`   // the key of a RunID, for rerun and cancel; 0: all runs
	Token  string `json:"token"`  // of the leader or the holder that the user has seen
	Reason string `json:"reason"`
}

var (
	errTick   = errors.New("statusz: rerun needs a tick")
	errToken  = errors.New("statusz: the token is not a number")
	errLeader = errors.New("statusz: resign needs the token of the leader")
)

// verbs are the actions, with the lists that they change.
var verbs = map[string]struct {
	kind overview.Kind
	do   func(ctx context.Context, p *Page, by lockcore.Operator, a action) error
}{
	"pause":   {overview.Jobs, onJob(func(ctx context.Context, j *singleton.Job, _ action) error { return j.Pause(ctx) })},
	"resume":  {overview.Jobs, onJob(func(ctx context.Context, j *singleton.Job, _ action) error { return j.Resume(ctx) })},
	"trigger": {overview.Jobs, onJob(func(ctx context.Context, j *singleton.Job, _ action) error { _, err := j.Trigger(ctx); return err })},
	"rerun": {overview.Jobs, onJob(func(ctx context.Context, j *singleton.Job, a action) error {
		if a.Tick == 0 {
			return errTick
		}
		return j.Rerun(ctx, singleton.RunOf(a.Tick))
	})},
	"cancel": {overview.Jobs, onJob(func(ctx context.Context, j *singleton.Job, a action) error {
		run := singleton.RunID{}
		if a.Tick != 0 {
			run = singleton.RunOf(a.Tick)
		}
		_, err := j.Cancel(ctx, run)
		return err
	})},
	"resign":  {overview.Elections, resign},
	"release": {overview.Locks, release},
}

// onJob returns the function of an action on a job.
func onJob(do func(ctx context.Context, j *singleton.Job, a action) error) func(context.Context, *Page, lockcore.Operator, action) error {
	return func(ctx context.Context, p *Page, by lockcore.Operator, a action) error {
		j, err := singleton.NewJob(p.reader.client, a.Name)
		if err == nil {
			j, err = j.By(by)
		}
		if err != nil {
			return err
		}
		return do(ctx, j, a)
	}
}

func resign(ctx context.Context, p *Page, by lockcore.Operator, a action) error {
	token, err := seenToken(a)
	if err == nil && token == 0 {
		err = errLeader // with 0, Resign asks any leader
	}
	if err != nil {
		return err
	}
	e, err := election.NewElection(p.reader.client, a.Name)
	if err == nil {
		e, err = e.By(by)
	}
	if err != nil {
		return err
	}
	_, err = e.Resign(ctx, token)
	return err
}

// release releases a lock, unless the holder that the user has seen does not hold it any more.
func release(ctx context.Context, p *Page, by lockcore.Operator, a action) error {
	token, err := seenToken(a)
	if err != nil {
		return err
	}
	seen, err := p.reader.client.Inspect(ctx, a.Name)
	if err != nil {
		return err
	}
	holds := func(h lockcore.Holder) bool { return h.Token == token }
	if foreign := seen.Kind == lockcore.LockForeign && token == 0; !foreign && !slices.ContainsFunc(seen.Holders, holds) {
		return lockcore.ErrChanged
	}
	_, err = p.reader.client.ForceRelease(ctx, seen, by)
	return err
}

func seenToken(a action) (uint64, error) {
	token, err := strconv.ParseUint(a.Token, 10, 64)
	if err != nil {
		return 0, errToken
	}
	return token, nil
}

// act carries out an action, if the page itself has sent it.
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, why string) { http.Error(w, "statusz: "+why, code) }
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
	verb, ok := verbs[a.Action]
	if !ok {
		refuse(http.StatusBadRequest, "the action is unknown")
		return
	}
	by := lockcore.Operator{Reason: a.Reason}
	if p.cfg.Operator != nil {
		by.Who = p.cfg.Operator(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTimeout)
	defer cancel()
	err := verb.do(ctx, p, by, a)
	p.reader.touch(key{verb.kind, a.Name})
	if err != nil {
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// sameOrigin reports whether a browser sent the request for a page of the same origin. A browser
// sets one of the two headers on every POST, and scripts cannot change them.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}

// codeOf returns the status code for the error of an action.
func codeOf(err error) int {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(lockcore.ErrUnknown, lockcore.ErrNotReplicated): // the page then says that it may have been done
		return http.StatusGatewayTimeout
	case is(lockcore.ErrConfig, election.ErrConfig, singleton.ErrConfig, errTick, errToken, errLeader):
		return http.StatusBadRequest
	case is(singleton.ErrNoLedger, singleton.ErrNoRun, singleton.ErrNotOpen, election.ErrNoLeader):
		return http.StatusNotFound
	case is(singleton.ErrNotEnded, singleton.ErrSucceeded, singleton.ErrTriggers, election.ErrTermOver, lockcore.ErrChanged):
		return http.StatusConflict
	case lockcore.IsTemporary(err):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
