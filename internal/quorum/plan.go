package quorum

import "slices"

// A State is what one server answered to quorum_state.
type State struct {
	Known   bool   // it answered
	Run     string // identifies the process of the server
	ID      string // identifies the server and its data; empty: none yet
	Member  bool   // it has the data of this run
	List    List
	Former  []string // the servers of the list that it had before
	Left    int64    // ms for which it grants nothing
	Longest int64    // ms
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
	Differs         // the client has other servers under the same number
	Replaced        // a majority of the servers is unknown to the others
	Double          // two servers are the same one
	Await           // too few servers answer
	Outside         // a server is not in the list, and this client may not let it in
)

// A Plan is what to do about the servers of a list.
type Plan struct {
	Do    Action
	About []int // the servers that the action is about, for logs
	First []int // to be let in, or moved to List
	Then  []int // to be let in when Enough of First have been

	// What the servers must know, in the case of Join, Form and Raise.
	List    List
	IDs     []string // by server
	Waits   []bool   // by server: from then on, it grants nothing for Longest
	Longest int64    // ms
	Top     uint64

	Known []string // for the next plan, by server; nil: as before

	moved  []string   // ids of the members that have List
	others [][]string // the servers of each list that others have, or have left for List
}

// Enough reports whether no other list has a majority of its servers any more, once some servers,
// given by their places, have been moved.
func (p Plan) Enough(moved []int) bool {
	ids := slices.Clone(p.moved)
	for _, i := range moved {
		ids = append(ids, p.IDs[i])
	}
	return !slices.ContainsFunc(p.others, func(l []string) bool { return among(l, ids) < Majority(len(l)) })
}

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

// Next returns the plan of a client for its servers. list is the number of its list, own its longest
// TTL in ms. known has the ids that the servers had in a list in force when the client last heard them: Plan.Known
// of the plans before.
//
// Once a list is in force, a server that is not in it may be the mistake of this client. So it is let in only
// by a client that has heard a member at its place, whose data is lost then. Others leave it outside.
//
// A client with a later list first makes every member one of its list. It needs an answer of all
// servers for that, so that no majority of the old list grants beside one of the new list. The package
// says why that also holds for lists with one number.
func Next(servers []State, list int, own int64, known []string) Plan {
	n := len(servers)
	p := Plan{Longest: own, IDs: make([]string, n), Waits: make([]bool, n)}
	var lost, older, short []int
	answers, members := 0, 0
	changes := false
	for i, s := range servers {
		if !s.Known {
			continue
		}
		answers++
		if j := slices.IndexFunc(servers[:i], func(o State) bool { return o.Known && o.Run == s.Run }); j >= 0 {
			return Plan{Do: Double, About: []int{j, i}}
		}
		if l := s.List; l.Number > list || l.Number == list && l.Size != n || l.Size > n {
			return Plan{Do: Outdated, About: []int{i}}
		}
		changes = changes || s.List.Number > 0 && s.List.Number < list
		p.Longest, p.Top = max(p.Longest, s.Longest), max(p.Top, s.Top)
		switch {
		case !s.Member:
			lost = append(lost, i)
		case s.List.Number < list:
			older = append(older, i)
		default:
			members++
		}
		if s.Member && s.Longest < own {
			short = append(short, i)
		}
	}
	identify(servers, p.IDs)
	former, strangers := newest(servers, list, p.IDs)
	if len(strangers) > 0 {
		return Plan{Do: Differs, About: strangers}
	}
	var barred []int
	if former.InForce() {
		isBarred := func(i int) bool { return !former.has(p.IDs[i]) && (servers[i].Member || known[i] == "") }
		for _, i := range slices.Concat(lost, older) {
			if isBarred(i) {
				barred = append(barred, i)
			}
		}
		lost, older, short = slices.DeleteFunc(lost, isBarred), slices.DeleteFunc(older, isBarred), slices.DeleteFunc(short, isBarred)
		for _, i := range barred {
			p.IDs[i] = ""
		}
		if len(barred) >= Majority(n) {
			return Plan{Do: Replaced, About: barred}
		}
	}
	outside := slices.DeleteFunc(slices.Clone(lost), func(i int) bool { return former.has(p.IDs[i]) })
	p.List = former
	if former.Number == 0 || len(outside) > 0 {
		if ids := complete(p.IDs, former, known); len(ids) == n {
			p.List = List{Number: list, Size: n, Version: former.Version + 2, Servers: ids}
			if former.Number == 0 {
				p.List.Version = 1
			}
		} else {
			p.Do = Await // nobody knows whose place is free
			lost = slices.DeleteFunc(lost, func(i int) bool { return slices.Contains(outside, i) })
		}
	}
	rival := func(s State) bool {
		return s.List.Number == list && s.List.Version == p.List.Version && s.List.Name() != p.List.Name()
	}
	if slices.ContainsFunc(servers, rival) {
		p.List.Version += 2
	}
	if p.List.Number > 0 && !p.List.InForce() && !slices.ContainsFunc(servers, func(s State) bool { return !s.Member || s.List.Name() != p.List.Name() }) {
		p.List.Version++ // all have it
	}
	p.Known = slices.Clone(known)
	for i, id := range p.IDs {
		if p.List.InForce() && former.has(id) {
			p.Known[i] = id
		}
	}
	seen := false
	var stale []int
	for i, s := range servers {
		same := s.List.Name() == p.List.Name()
		seen = seen || same
		switch {
		case s.List.Number != list:
		case !same && s.Member:
			stale = append(stale, i)
			fallthrough
		case !same:
			p.others = append(p.others, s.List.Servers)
		case s.Member:
			p.moved = append(p.moved, p.IDs[i])
			if len(s.Former) > 0 {
				p.others = append(p.others, s.Former)
			}
		}
	}
	apart := func(i int) bool { // another list is without this server
		return slices.ContainsFunc(p.others, func(l []string) bool { return !slices.Contains(l, p.IDs[i]) })
	}
	for i, s := range servers {
		p.Waits[i] = !s.Member || !s.List.InForce() || apart(i)
		if l := s.List; l.Number > 0 && p.List.Number > 0 && !seen && among(l.Servers, p.List.Servers) < Majority(l.Size) {
			if len(outside) > 0 {
				return Plan{Do: Replaced, About: outside}
			}
			return Plan{Do: Differs, About: []int{i}}
		}
	}
	switch {
	case len(older) > 0 && answers == n:
		p.Do, p.About = Raise, older
	case len(older) > 0:
		p.Do = Await
	case len(lost) == 0 && len(stale) > 0:
		p.Do, p.About = Raise, stale
	case len(lost) == 0 && len(short) > 0 && p.List.Number > 0:
		p.Do, p.About = Raise, short
	case len(lost) == 0:
	case members >= Majority(n):
		p.Do, p.About = Join, slices.Concat(stale, lost)
	case len(lost) > n-Majority(n) && (!changes || answers == n):
		p.Do, p.About = Form, slices.Concat(stale, lost)
	default:
		p.Do = Await
	}
	for _, i := range p.About {
		if !p.List.InForce() || servers[i].ID == p.IDs[i] && !apart(i) {
			p.First = append(p.First, i)
		} else {
			p.Then = append(p.Then, i)
		}
	}
	if len(barred) > 0 && (p.Do == Nothing || p.Do == Await) {
		p.Do, p.About = Outside, barred
	}
	return p
}

// identify gives each server its id. A server that has none, or a copy of another one's, gets the
// number of its return.
func identify(servers []State, ids []string) {
	for _, member := range []bool{true, false} {
		for i, s := range servers {
			switch {
			case !s.Known || s.Member != member:
			case s.ID == "" || slices.Contains(ids, s.ID):
				ids[i] = s.Return
			default:
				ids[i] = s.ID
			}
		}
	}
}

// newest returns the latest version of the list that a server has, and the members that are not in
// it. If versions were begun at the same time, it is one with all members.
func newest(servers []State, list int, ids []string) (newest List, strangers []int) {
	for _, s := range servers {
		if s.List.Number != list || s.List.Version < newest.Version || s.List.Version == newest.Version && len(strangers) == 0 {
			continue
		}
		newest, strangers = s.List, nil
		for i, m := range servers {
			if m.Known && m.Member && m.List.Number == list && !newest.has(ids[i]) {
				strangers = append(strangers, i)
			}
		}
	}
	return newest, strangers
}

// complete returns all ids, sorted, with those of known for servers that do not answer. An id that is
// not in the former list belongs to data that is lost.
func complete(ids []string, former List, known []string) (all []string) {
	for i, id := range ids {
		if id == "" && former.has(known[i]) {
			id = known[i]
		}
		if id != "" && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}
