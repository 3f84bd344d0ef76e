package lease

import (
	"container/heap"
	"time"
)

// A place is where a lease stands in a schedule.
type place struct {
	at    time.Duration // when it is due
	index int           // plus one; 0: it is in none
}

// A schedule is a heap of leases by when they are due.
type schedule struct {
	leases []*Lease
	place  func(*Lease) *place
}

// add has a lease be due at an instant. It must not be in the schedule.
func (s *schedule) add(l *Lease, at time.Duration) {
	s.place(l).at = at
	heap.Push(s, l)
}

// move has a lease be due at another instant.
func (s *schedule) move(l *Lease, at time.Duration) {
	p := s.place(l)
	p.at = at
	heap.Fix(s, p.index-1)
}

// remove takes a lease out, if it is in.
func (s *schedule) remove(l *Lease) {
	if p := s.place(l); p.index > 0 {
		heap.Remove(s, p.index-1)
	}
}

// first is the lease that is due first, and when; nil: the schedule is empty.
func (s *schedule) first() (*Lease, time.Duration) {
	if len(s.leases) == 0 {
		return nil, never
	}
	return s.leases[0], s.place(s.leases[0]).at
}

func (s *schedule) Len() int { return len(s.leases) }

func (s *schedule) Less(i, j int) bool { return s.place(s.leases[i]).at < s.place(s.leases[j]).at }

func (s *schedule) Swap(i, j int) {
	s.leases[i], s.leases[j] = s.leases[j], s.leases[i]
	s.place(s.leases[i]).index, s.place(s.leases[j]).index = i+1, j+1
}

// Push is for package heap.
func (s *schedule) Push(x any) {
	l := x.(*Lease)
	s.leases = append(s.leases, l)
	s.place(l).index = len(s.leases)
}

// Pop is for package heap.
func (s *schedule) Pop() any {
	last := len(s.leases) - 1
	l := s.leases[last]
	s.leases[last] = nil
	s.leases = s.leases[:last]
	s.place(l).index = 0
	return l
}
