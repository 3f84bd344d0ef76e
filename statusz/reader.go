package statusz

import (
	"context"
	"errors"

	"github.com/noonlock/noonlock/internal/retry"
)

var (
	errClosed = errors.New("statusz: the page is closed")
	errFull   = errors.New("statusz: too many browsers have the page open")
)

const maxStreams = 100

// A reader fills its cache as long as there are views.
type reader struct {
	*cache
	run    *run // nil without views
	closed bool
}

// join adds a view, and starts a run if the view is the first one.
func (r *reader) join(ctx context.Context, v *view) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errClosed
	case len(r.views) >= maxStreams:
		return errFull
	}
	r.views[v] = struct{}{}
	if r.run == nil {
		r.clear()
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		run := &run{
			cache: r.cache, generation: r.generation, poll: retry.NewSignal(), search: retry.NewSignal(), cancel: cancel, things: map[key]*thing{},
		}
		run.done.Go(func() { run.searchAll(ctx) })
		run.done.Go(func() { run.pollAll(ctx) })
		r.run = run
	}
	r.run.poll.Send()
	return nil
}

// stop ends a run, if there is one, and waits until it has ended.
func (r *run) stop() {
	if r != nil {
		r.cancel()
		r.done.Wait()
	}
}

// leave removes a view. After the last view, it stops the run.
func (r *reader) leave(v *view) {
	r.mu.Lock()
	delete(r.views, v)
	var ended *run
	if len(r.views) == 0 {
		ended, r.run = r.run, nil
		r.generation++
	}
	r.mu.Unlock()
	ended.stop()
}

func (r *reader) close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for v := range r.views {
			close(v.ended)
		}
	}
	run := r.run
	r.mu.Unlock()
	run.stop()
}

// touch makes the poller read a thing at once.
func (r *reader) touch(k key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run != nil {
		r.touched[k] = true
		r.run.poll.Send()
	}
}
