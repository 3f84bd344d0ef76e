package lease

import (
	"container/heap"
	"time"
)

// A schedule is a heap of leases, ordered by due time.
type schedule struct {
	leases   []*Lease
	renewals bool // ordered by the next renewal instead of the end
}

func (s *schedule) position(l *Lease) *position {
	if s.renewals {
		return &l.renews
	}
	return &l.expires
}

// add inserts a lease, which must not be in the schedule.
func (s *schedule) add(l *Lease, at time.Duration) {
	s.position(l).at = at
	heap.Push(s, l)
}

func (s *schedule) move(l *Lease, at time.Duration) {
	p := s.position(l)
	p.at = at
	heap.Fix(s, p.index-1)
}

func (s *schedule) remove(l *Lease) {
	if p := s.position(l); p.index > 0 {
		heap.Remove(s, p.index-1)
	}
}

// first returns the lease with the earliest due time, or nil, and the time.
func (s *schedule) first() (*Lease, time.Duration) {
	if len(s.leases) == 0 {
		return nil, never
	}
	return s.leases[0], s.position(s.leases[0]).at
}

func (s *schedule) Len() int { return len(s.leases) }

func (s *schedule) Less(i, j int) bool {
	return s.position(s.leases[i]).at < s.position(s.leases[j]).at
}

func (s *schedule) Swap(i, j int) {
	s.leases[i], s.leases[j] = s.leases[j], s.leases[i]
	s.position(s.leases[i]).index, s.position(s.leases[j]).index = i+1, j+1
}

func (s *schedule) Push(x any) {
	l := x.(*Lease)
	s.leases = append(s.leases, l)
	s.position(l).index = len(s.leases)
}

func (s *schedule) Pop() any {
	last := len(s.leases) - 1
	l := s.leases[last]
	s.leases[last] = nil
	s.leases = s.leases[:last]
	s.position(l).index = 0
	return l
}
