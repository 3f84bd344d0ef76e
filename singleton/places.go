package singleton

import (
	"slices"
	"sync"
)

// places are the places of a Runner for its runs. They are given in the order of the requests.
type places struct {
	mu    sync.Mutex
	free  int
	queue []*place // requests that wait
}

// A place is the right to one run, or a request for it.
type place struct {
	of    *places       // nil: there is no limit
	given chan struct{} // closed when it is a right
	wake  func()        // called then, if the request had to wait
}

// request requests a place. p may be nil, which is no limit.
func (p *places) request(wake func()) *place {
	one := &place{of: p, given: make(chan struct{}), wake: wake}
	if p == nil {
		close(one.given)
		return one
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		close(one.given)
	} else {
		p.queue = append(p.queue, one)
	}
	return one
}

func (p *place) isGiven() bool {
	select {
	case <-p.given:
		return true
	default:
		return false
	}
}

// leave gives the place to the first one that waits, or ends the request. p may be nil.
func (p *place) leave() {
	if p == nil || p.of == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.isGiven() {
		i := slices.Index(p.of.queue, p)
		p.of.queue = slices.Delete(p.of.queue, i, i+1)
		return
	}
	if len(p.of.queue) == 0 {
		p.of.free++
		return
	}
	next := p.of.queue[0]
	p.of.queue = p.of.queue[1:]
	close(next.given)
	next.wake()
}

// place returns a place for a claim, or nil if that has to wait. The loop is then woken.
func (f *follower) place() *place {
	places := f.r.places
	if f.once != nil { // its caller may have a place itself
		places = nil
	}
	if f.seat == nil {
		f.seat = places.request(f.wake)
	}
	p := f.seat
	if f.waits = !p.isGiven(); f.waits {
		return nil
	}
	f.seat = nil
	return p
}

// unseat ends the wait for a place if the last step has not claimed anything.
func (f *follower) unseat() {
	if !f.waits {
		f.seat.leave()
		f.seat = nil
	}
}
