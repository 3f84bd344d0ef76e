package quorum

import "slices"

// A State is the answer of one server to quorum_state. It is zero if the server did not answer.
type State struct {
	Answered bool
	Run      string // identifies the process of the server
	ID       string // identifies the server and its data, empty before its admission
	Member   bool   // whether it has the data with which it was let in
	List     List
	Former   []string // ids in the list that it had before
	WaitLeft int64    // ms until it grants locks
	MaxTTL   int64    // longest TTL of any lock in ms
	MaxToken uint64   // greatest committed token
	ReturnID string   // random text that its next admission must repeat
}

// An Action is the next step of a client.
type Action int

// The actions.
const (
	Nothing  Action = iota
	Join            // let in the servers that lost data
	Form            // Join although a majority has no data of this run
	Raise           // give members the client's list, or its longest TTL
	Outdated        // report that the client's list is not the newest
	Differs         // report that the client has other servers under the same number
	Replaced        // report that most of the servers are not in the list in force
	Double          // report that two servers are the same one
	Await           // wait: too few servers answer
	Outside         // report servers that are not in the list and must not be let in
)

// A Plan is the next step for the servers of a list. Servers are given by their places in the client's list.
type Plan struct {
	Do    Action
	About []int // servers of the action
	First []int // servers of About to which to send quorum_join first
	Then  []int // servers of About that follow once Enough is true for the servers of First

	// The values that Join, Form and Raise store at the servers.
	List     List
	IDs      []string // id of each server
	Waits    []bool   // whether each server then grants nothing for MaxTTL
	MaxTTL   int64    // longest TTL of any lock in ms
	MaxToken uint64   // greatest committed token

	// MemberIDs are the ids for the next plan, by server. They are nil if nothing has changed.
	MemberIDs []string

	moved  []string   // ids of the members that have List
	others [][]string // ids in each other list that servers have, or had before List
}

// Enough reports whether a majority of each other list has List, once the moved servers have it, too. The other lists
// then grant nothing.
func (p Plan) Enough(moved []int) bool {
	ids := slices.Clone(p.moved)
	for _, i := range moved {
		ids = append(ids, p.IDs[i])
	}
	return !slices.ContainsFunc(p.others, func(l []string) bool { return among(l, ids) < Majority(len(l)) })
}

// Confirmed returns the servers that a client may let in. first and states are two readings. A server must have
// had its ReturnID at the first one, so that the greatest token, from the second one, was read after its return began.
func Confirmed(first, states []State, servers []int) (confirmed []int) {
	for _, i := range servers {
		if first[i].Answered && first[i].ReturnID == states[i].ReturnID {
			confirmed = append(confirmed, i)
		}
	}
	return confirmed
}

// Next returns the plan of a client for its servers. list is the number of its list, and ttl its longest TTL in ms.
// memberIDs are the Plan.MemberIDs of the plan before: the ids with which the client last saw its servers as members
// of a list in force.
//
// Once a list is in force, a server outside the list may be a mistake of this client. So a client lets that server in
// only if it has seen a member at this place: the data of that member is lost then.
//
// A client with a later number first moves every member to its list. This needs an answer of all servers, so that
// no majority of the old list grants at the same time as a majority of the new list. The package documentation
// says why two lists with one number do not either.
func Next(servers []State, list int, ttl int64, memberIDs []string) Plan {
	n := len(servers)
	p := Plan{MaxTTL: ttl, IDs: make([]string, n), Waits: make([]bool, n)}
	var lost, older, short []int // servers: without data, with an earlier number, with a shorter MaxTTL
	answers, members := 0, 0
	renumbered := false // whether a server has a list with an earlier number
	for i, s := range servers {
		if !s.Answered {
			continue
		}
		answers++
		if j := slices.IndexFunc(servers[:i], func(o State) bool { return o.Answered && o.Run == s.Run }); j >= 0 {
			return Plan{Do: Double, About: []int{j, i}}
		}
		if l := s.List; l.Number > list || l.Number == list && l.Size != n || l.Size > n {
			return Plan{Do: Outdated, About: []int{i}}
		}
		renumbered = renumbered || s.List.Number > 0 && s.List.Number < list
		p.MaxTTL, p.MaxToken = max(p.MaxTTL, s.MaxTTL), max(p.MaxToken, s.MaxToken)
		switch {
		case !s.Member:
			lost = append(lost, i)
		case s.List.Number < list:
			older = append(older, i)
		default:
			members++
		}
		if s.Member && s.MaxTTL < ttl {
			short = append(short, i)
		}
	}
	identify(servers, p.IDs)
	former, strangers := newest(servers, list, p.IDs)
	if len(strangers) > 0 {
		return Plan{Do: Differs, About: strangers}
	}
	var barred []int // servers outside the list in force that this client must not let in
	if former.InForce() {
		isBarred := func(i int) bool { return !former.has(p.IDs[i]) && (servers[i].Member || memberIDs[i] == "") }
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
		if ids := complete(p.IDs, former, memberIDs); len(ids) == n {
			p.List = List{Number: list, Size: n, Version: former.Version + 2, Servers: ids}
			if former.Number == 0 {
				p.List.Version = 1
			}
		} else {
			p.Do = Await // without the id of each server, the new version would lack a member
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
		p.List.Version++ // all servers have the announced version
	}
	p.MemberIDs = slices.Clone(memberIDs)
	for i, id := range p.IDs {
		if p.List.InForce() && former.has(id) {
			p.MemberIDs[i] = id
		}
	}
	seen := false   // whether a server has p.List
	var stale []int // members that have another version
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
	apart := func(i int) bool { // whether another list is without this server
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
	case len(lost) > n-Majority(n) && (!renumbered || answers == n):
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

// identify sets the id of each server. A server without an id, or with a copy of another server's data, gets its
// ReturnID. Members come first, so that the copy gets the new id.
func identify(servers []State, ids []string) {
	for _, member := range []bool{true, false} {
		for i, s := range servers {
			switch {
			case !s.Answered || s.Member != member:
			case s.ID == "" || slices.Contains(ids, s.ID):
				ids[i] = s.ReturnID
			default:
				ids[i] = s.ID
			}
		}
	}
}

// newest returns the list with the latest version that a server has, and the members that are not in
// this list. Of lists with the same version, it prefers a list with all members.
func newest(servers []State, list int, ids []string) (newest List, strangers []int) {
	for _, s := range servers {
		if s.List.Number != list || s.List.Version < newest.Version || s.List.Version == newest.Version && len(strangers) == 0 {
			continue
		}
		newest, strangers = s.List, nil
		for i, m := range servers {
			if m.Answered && m.Member && m.List.Number == list && !newest.has(ids[i]) {
				strangers = append(strangers, i)
			}
		}
	}
	return newest, strangers
}

// complete returns the ids of all servers, sorted. For servers that do not answer, it takes the ids from memberIDs,
// unless that id is not in the former list: the server has lost the data of that id.
func complete(ids []string, former List, memberIDs []string) (all []string) {
	for i, id := range ids {
		if id == "" && former.has(memberIDs[i]) {
			id = memberIDs[i]
		}
		if id != "" && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}
