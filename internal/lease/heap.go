package lease

import (
	"container/heap"
	"time"
)

// A place is the position of a lease in a schedule.
type place struct {
	at    time.Duration // when it is due
	index int           // index in the heap plus one; 0: not scheduled
}

// A schedule is a heap of leases, ordered by due time.
type schedule struct {
	leases []*Lease
	place  func(*Lease) *place
}

// add inserts a lease, which must not be in the schedule.
func (s *schedule) add(l *Lease, at time.Duration) {
	s.place(l).at = at
	heap.Push(s, l)
}

// move changes the due time of a lease.
func (s *schedule) move(l *Lease, at time.Duration) {
	p := s.place(l)
	p.at = at
	heap.Fix(s, p.index-1)
}

// remove removes a lease if it is in the schedule.
func (s *schedule) remove(l *Lease) {
	if p := s.place(l); p.index > 0 {
		heap.Remove(s, p.index-1)
	}
}

// first returns the lease with the earliest due time, and that time; nil if there is none.
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

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	l := x.(*Lease)
	s.leases = append(s.leases, l)
	s.place(l).index = len(s.leases)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(s.leases) - 1
	l := s.leases[last]
	s.leases[last] = nil
	s.leases = s.leases[:last]
	s.place(l).index = 0
	return l
}
