package doctor

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

var membership = setting{"quorum", false, []row{
	{"!list", Warn, "the server has no data of the quorum; it grants nothing until a client has let it in, and then for MaxTTL"},
	{"restarted", Warn, "the server has restarted; it grants nothing until a client has let it in, and then for MaxTTL"},
	{"waits", Warn, "the server grants nothing for another {waits}"},
	{"", OK, "list {number} of {size} servers, MaxTTL {longest} ms"},
}}

// readMember reads the membership that a server of a quorum has stored, see quorum_join.lua. A list of
// servers is stored as number/size/version/hash.
func (n *node) readMember(ctx context.Context) {
	stored, storedProblem := n.ask(ctx, "hmget", n.cfg.Prefix+":quorum", "run", "list", "after", "longest")
	clock, clockProblem := n.ask(ctx, "time")
	if problem := cmp.Or(storedProblem, clockProblem); problem != "" {
		n.add("quorum", Warn, "unknown: %s", problem)
		return
	}
	n.member = map[string]string{}
	values, _ := stored.([]any)
	for i, field := range []string{"joined", "list", "after", "longest"} {
		n.member[field] = wire.Text(append(values, nil, nil, nil, nil)[i]) // an odd answer may have fewer values
	}
	if parts := strings.Split(n.member["list"], "/"); len(parts) > 1 {
		n.member["number"], n.member["size"] = parts[0], parts[1]
	}
	if run := n.info["run_id"]; run != "" && n.member["joined"] != run {
		n.member["restarted"] = "yes"
	}
	if after, err := strconv.ParseInt(n.member["after"], 10, 64); err == nil {
		if waits := time.UnixMilli(after).Sub(instant(clock)); waits > 0 {
			n.member["waits"] = short(waits)
		}
	}
}

// compareMembers checks that the servers are members of one quorum. It returns the checks of all servers together.
func compareMembers(nodes []*node) (checks []Check) {
	add := func(verdict Verdict, format string, args ...any) {
		checks = append(checks, checkOf("", "quorum", verdict, format, args...))
	}
	var members []*node
	byRun := map[string]*node{}
	numbers, lists, longest := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		if n.member == nil {
			continue
		}
		run := n.info["run_id"]
		if same := byRun[run]; same != nil && run != "" {
			add(Fail, "%s and %s are the same server", same.addr, n.addr)
		}
		byRun[run] = n
		if members = append(members, n); n.member["list"] != "" {
			numbers[n.member["number"]], lists[n.member["list"]], longest[n.member["longest"]] = true, true, true
		}
	}
	if len(lists) == 0 {
		add(OK, "no server has been used as one of a quorum yet")
		return checks
	}
	for _, n := range members {
		verdict, found := membership.judge(n.member)
		n.add("quorum", verdict, "%s", found)
		if size := n.member["size"]; size != "" && size != strconv.Itoa(len(nodes)) {
			add(Warn, "the list of %s has %s servers, and %d were given", n.addr, size, len(nodes))
		}
	}
	switch {
	case len(numbers) > 1:
		add(Fail, "the servers have different lists")
	case len(lists) > 1:
		add(Warn, "the servers have different servers under one number; "+
			"a client mends this, or says that it has other servers")
	}
	if len(longest) > 1 {
		add(Warn, "the servers have different MaxTTL")
	}
	return checks
}
