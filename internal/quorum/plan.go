package quorum

import "slices"

// A State is what one server answered to quorum_state.
type State struct {
	Known   bool   // it answered
	Run     string // identifies the server
	Member  bool   // it has the data of this run
	List    int    // the number of its list; 0: none
	Size    int    // the number of servers in that list
	Left    int64  // ms for which it grants nothing
	Longest int64  // ms
	Top     uint64
	Return  string
}

// An Action is what a client does next.
type Action int

// The actions.
const (
	Nothing  Action = iota
	Join            // let in the servers that lost data
	Form            // the same, although a majority has lost its data
	Raise           // make the members those of the client's list
	Outdated        // the client's list is not the newest
	Double          // two servers are the same one
	Await           // too few servers answer
)

// Confirmed returns those of whom that a client may let in: the greatest token was read by
// states, after the number of their return was known from first.
func Confirmed(first, states []State, whom []int) (sure []int) {
	for _, i := range whom {
		if first[i].Known && first[i].Return == states[i].Return {
			sure = append(sure, i)
		}
	}
	return sure
}

// Next returns what to do about the servers of a list, and which of them it concerns. In the
// case of Join, Form and Raise, longest and top are what they must know.
//
// A client with a later list first makes every member one of its list. It needs an answer of all
// servers for that, and lets in new ones only afterwards. So no majority of the old list grants
// beside one of the new list.
func Next(servers []State, list int, own int64) (do Action, whom []int, longest int64, top uint64) {
	n := len(servers)
	var lost, older []int
	members, known := 0, 0
	longest = own
	for i, s := range servers {
		if !s.Known {
			continue
		}
		known++
		if j := slices.IndexFunc(servers[:i], func(o State) bool { return o.Known && o.Run == s.Run }); j >= 0 {
			return Double, []int{j, i}, 0, 0
		}
		if s.List > list || s.List == list && s.Size != n || s.Size > n {
			return Outdated, []int{i}, 0, 0
		}
		longest, top = max(longest, s.Longest), max(top, s.Top)
		switch {
		case !s.Member:
			lost = append(lost, i)
		case s.List < list:
			older = append(older, i)
		default:
			members++
		}
	}
	changes := len(older) > 0 || slices.ContainsFunc(servers, func(s State) bool { return s.List > 0 && s.List < list })
	switch {
	case len(older) > 0 && known == n:
		return Raise, older, longest, top
	case len(older) > 0:
		return Await, nil, 0, 0
	case len(lost) == 0:
		for i, s := range servers {
			if s.Known && s.Longest < own {
				whom = append(whom, i)
			}
		}
		if whom != nil {
			return Raise, whom, longest, top
		}
		return Nothing, nil, 0, 0
	case members >= Majority(n):
		return Join, lost, longest, top
	case len(lost) > n-Majority(n) && (!changes || known == n):
		return Form, lost, longest, top
	}
	return Await, nil, 0, 0
}
