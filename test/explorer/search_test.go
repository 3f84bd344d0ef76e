package explorer

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
)

// A step is described by what happens to whom.
type step struct {
	what        string
	who, detail uint8
}

// found is the result of a search.
type found struct {
	states  int
	depth   int // number of steps from the start within which all states were visited
	broken  string
	trace   []string
	took    time.Duration
	atDepth []int
}

// search visits the states breadth first, so a broken promise is found with a minimal number of
// steps.
//
// Visited states are stored as 64-bit hashes. Among a few million states, the probability of a
// collision is below one in a million.
func search(m *lockModel, depth, workers int) found {
	begin := time.Now()
	type node struct {
		state  lockState
		parent int32
		what   step
	}
	seed := maphash.MakeSeed()
	const parts = 256
	var seen [parts]struct {
		sync.Mutex
		set map[uint64]struct{}
	}
	for i := range seen {
		seen[i].set = map[uint64]struct{}{}
	}
	first := m.start()
	add := func(s lockState) bool {
		h := maphash.Comparable(seed, s)
		part := &seen[h%parts]
		part.Lock()
		defer part.Unlock()
		if _, ok := part.set[h]; ok {
			return false
		}
		part.set[h] = struct{}{}
		return true
	}
	add(first)
	nodes := []node{{state: first, parent: -1}}
	from := 0
	out := found{atDepth: []int{1}}
	// explain tells the steps that lead to a node.
	explain := func(last node) (lines []string) {
		for n := last; n.parent >= 0; n = nodes[n.parent] {
			lines = append(lines, m.tell(n.what))
		}
		slices.Reverse(lines)
		return append(lines, "then: "+m.show(nodes[max(last.parent, 0)].state), "and: "+m.show(last.state))
	}
	if broken := m.fault(first, 0); broken != "" {
		out.states, out.broken, out.trace = 1, broken, explain(nodes[0])
		return out
	}
	for level := 1; level <= depth; level++ {
		to := len(nodes)
		const chunk = 256
		var mu sync.Mutex
		next := from
		var worst *node
		fresh := make([][]node, workers)
		var wg sync.WaitGroup
		for worker := range workers {
			wg.Go(func() {
				for {
					mu.Lock()
					a := next
					next += chunk
					stop := worst != nil
					mu.Unlock()
					if a >= to || stop {
						return
					}
					for i := a; i < min(a+chunk, to); i++ {
						m.steps(nodes[i].state, worker, func(what step, s lockState, broken string) {
							isNew := false
							if broken == "" {
								if isNew = add(s); isNew {
									broken = m.fault(s, worker)
								}
							}
							if broken != "" {
								mu.Lock()
								if worst == nil || int32(i) < worst.parent {
									worst, out.broken = &node{s, int32(i), what}, broken
								}
								mu.Unlock()
								return
							}
							if isNew {
								fresh[worker] = append(fresh[worker], node{s, int32(i), what})
							}
						})
					}
				}
			})
		}
		wg.Wait()
		for _, f := range fresh {
			nodes = append(nodes, f...)
		}
		if worst != nil {
			out.trace = explain(*worst)
			break
		}
		out.atDepth = append(out.atDepth, len(nodes)-to)
		out.depth = level
		from = to
	}
	out.states = len(nodes)
	out.took = time.Since(begin)
	return out
}

func (f found) String() string {
	if f.broken != "" {
		return fmt.Sprintf("%d states, then: %s\n%s", f.states, f.broken, strings.Join(f.trace, "\n"))
	}
	return fmt.Sprintf("%d states, all within %d steps", f.states, f.depth)
}
