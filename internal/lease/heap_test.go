package lease

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// A schedule returns leases in the order of their due times. Each lease's place holds its
// index.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(*Lease) *place{
		"renewals": func(l *Lease) *place { return &l.renews },
		"ends":     func(l *Lease) *place { return &l.expires },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &schedule{place: place}
			r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test needs no secure random numbers
			in := map[*Lease]bool{}
			for range 3000 {
				if r.IntN(3) > 0 || len(in) == 0 {
					l := &Lease{}
					s.add(l, time.Duration(r.IntN(100)))
					in[l] = true
					continue
				}
				for l := range in { // in random order
					if r.IntN(2) == 0 {
						s.move(l, time.Duration(r.IntN(100)))
						break
					}
					s.remove(l)
					s.remove(l) // a second removal does nothing
					delete(in, l)
					if place(l).index != 0 {
						t.Fatal("a removed lease still has an index")
					}
					break
				}
			}
			last := time.Duration(-1)
			for s.Len() > 0 {
				for i, l := range s.leases {
					if place(l).index != i+1 {
						t.Fatalf("the lease at index %d has index %d", i, place(l).index-1)
					}
				}
				l, at := s.first()
				if at < last || !in[l] || heap.Pop(s) != l {
					t.Fatalf("%v after %v", at, last)
				}
				last = at
				delete(in, l)
			}
			if len(in) != 0 {
				t.Errorf("%d leases were lost", len(in))
			}
			if l, at := s.first(); l != nil || at != never {
				t.Errorf("an empty schedule has %v at %v", l, at)
			}
		})
	}
}
