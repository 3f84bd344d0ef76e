package judge

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A step is an operation of the model of a lock: a grant, or the end of a lease.
type step struct {
	lease   *call
	release bool
}

// A lockState is the holder of a lock, nil if it is free, and its greatest token.
type lockState struct {
	holder *call
	token  uint64
}

var lock = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(step)
		if in.release {
			return s.holder == in.lease, lockState{nil, s.token}
		}
		return s.holder == nil && (in.lease.Token == 0 || in.lease.Token > s.token), lockState{in.lease, in.lease.Token}
	},
	Equal: func(a, b any) bool { return a == b },
}

// linearizable: there is an order of all grants and ends in which one holder has a lock at a time and tokens grow. A
// lease that was not released ends after the worker's belief in it. If data was lost, there need not be one.
func (r *run) linearizable() {
	const most = 200 // leases at a time: the time and memory of the check grow with the square
	for unit, leases := range r.units() {
		if kind := leases[0].Kind; kind == history.RW || kind == history.Semaphore {
			continue
		}
		for {
			part := leases[:min(most, len(leases))]
			if porcupine.CheckOperationsTimeout(lock, steps(part), 10*time.Second) == porcupine.Illegal {
				from, to := part[0].ask, part[len(part)-1].answer
				r.add("not linearizable", from, to, "%s: no order of %d leases is possible", unit, len(part))
			}
			if len(part) < most {
				break
			}
			leases = leases[most/2:] // the parts overlap
		}
	}
}

func steps(leases []*call) (all []porcupine.Operation) {
	for n, c := range leases {
		after := int64(never)
		if c.released > 0 && c.releaseErr == "" {
			after = max(c.released, c.believed())
		}
		all = append(all,
			porcupine.Operation{ClientId: 2 * n, Input: step{c, false}, Call: c.ask, Return: c.answer},
			porcupine.Operation{ClientId: 2*n + 1, Input: step{c, true}, Call: c.believed(), Return: after})
	}
	return all
}
