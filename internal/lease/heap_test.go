package lease

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// Leases come out of a schedule in the order in which they are due, and each knows where
// it stands.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(*Lease) *place{
		"renewals": func(l *Lease) *place { return &l.renews },
		"ends":     func(l *Lease) *place { return &l.expires },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &schedule{place: place}
			r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's choices
			in := map[*Lease]bool{}
			for range 3000 {
				if r.IntN(3) > 0 || len(in) == 0 {
					l := &Lease{}
					s.add(l, time.Duration(r.IntN(100)))
					in[l] = true
					continue
				}
				for l := range in { // any of them
					if r.IntN(2) == 0 {
						s.move(l, time.Duration(r.IntN(100)))
						break
					}
					s.remove(l)
					s.remove(l) // twice is safe
					delete(in, l)
					if place(l).index != 0 {
						t.Fatal("a removed lease believes that it is in the schedule")
					}
					break
				}
			}
			last := time.Duration(-1)
			for s.Len() > 0 {
				for i, l := range s.leases {
					if place(l).index != i+1 {
						t.Fatalf("the lease at %d believes to be at %d", i, place(l).index-1)
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
