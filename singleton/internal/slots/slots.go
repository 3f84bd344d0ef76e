// Package slots limits the runs that a replica has at a time: singleton.Config.MaxConcurrentRuns.
package slots

import (
	"slices"
	"sync"
)

// Slots are the runs that a replica may have at a time. They are granted in the order of the requests.
type Slots struct {
	mu    sync.Mutex
	free  int     // slots that nobody has
	queue []*Slot // requests that wait
}

// New returns n slots. If n is 0, it returns nil, which has no limit.
func New(n int) *Slots {
	if n == 0 {
		return nil
	}
	return &Slots{free: n}
}

// A Slot is the right to one run, or a request for that right. A nil Slot is neither.
type Slot struct {
	slots   *Slots // nil if there is no limit
	granted bool   // guarded by slots.mu
	wake    func() // called when the request is granted after a wait
}

// Request requests a slot. If the request must wait, wake is called when it is granted.
func (s *Slots) Request(wake func()) *Slot {
	if s == nil {
		return &Slot{granted: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := &Slot{slots: s, granted: s.free > 0, wake: wake}
	if slot.granted {
		s.free--
	} else {
		s.queue = append(s.queue, slot)
	}
	return slot
}

// Granted reports whether the request was granted.
func (s *Slot) Granted() bool {
	if s.slots != nil {
		s.slots.mu.Lock()
		defer s.slots.mu.Unlock()
	}
	return s.granted
}

// Release grants the slot to the oldest request, or cancels a request.
func (s *Slot) Release() {
	if s == nil || s.slots == nil {
		return
	}
	all := s.slots
	all.mu.Lock()
	defer all.mu.Unlock()
	if !s.granted {
		i := slices.Index(all.queue, s)
		all.queue = slices.Delete(all.queue, i, i+1)
		return
	}
	if len(all.queue) == 0 {
		all.free++
		return
	}
	next := all.queue[0]
	all.queue = all.queue[1:]
	next.granted = true
	next.wake()
}
