package explorer

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A step is described by what happens to whom.
type step struct {
	what        string
	who, detail uint8
}

// found is the result of a search.
type found struct {
	states int
	depth  int // number of steps from the start within which all states were visited
	broken string
	trace  []string
}

// search visits the states breadth first, so a broken promise is found with a minimal number of
// steps.
//
// Visited states are stored as 64-bit hashes. Among a few million states, the probability of a
// collision is below one in a million.
func search(m *lockModel, depth int) (out found) {
	type node struct {
		state  lockState
		parent int32
		what   step
	}
	var nodes []node
	seed, seen := maphash.MakeSeed(), map[uint64]struct{}{}
	visit := func(n node, broken string) {
		if out.broken != "" {
			return
		}
		if broken == "" {
			h := maphash.Comparable(seed, n.state)
			if _, ok := seen[h]; ok {
				return
			}
			seen[h] = struct{}{}
			broken = m.fault(n.state)
		}
		nodes = append(nodes, n)
		if out.broken = broken; broken == "" {
			return
		}
		for last := n; last.parent >= 0; last = nodes[last.parent] { // the steps that lead there
			out.trace = append(out.trace, m.tell(last.what))
		}
		slices.Reverse(out.trace)
		out.trace = append(out.trace, "then: "+m.show(nodes[max(n.parent, 0)].state), "and: "+m.show(n.state))
	}
	visit(node{state: m.start(), parent: -1}, "")
	for from := 0; out.depth < depth && out.broken == ""; out.depth++ {
		to := len(nodes)
		for ; from < to && out.broken == ""; from++ {
			m.steps(nodes[from].state, func(what step, s lockState, broken string) { visit(node{s, int32(from), what}, broken) })
		}
	}
	out.states = len(nodes)
	return out
}

func (f found) String() string {
	if f.broken != "" {
		return fmt.Sprintf("%d states, then: %s\n%s", f.states, f.broken, strings.Join(f.trace, "\n"))
	}
	return fmt.Sprintf("%d states, all within %d steps", f.states, f.depth)
}
