package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A member is what a server of a quorum has stored about itself, see lockcore's quorum_join.lua.
type member struct {
	run     string // the present run of the server
	joined  string // the run that was let in
	list    string // its name: number/size/version/hash of the servers in it
	number  string // of the list
	size    string // how many servers the list has
	longest string // ms
	waits   time.Duration
}

// readMember reads the state of a server of a quorum. It writes nothing.
func (n *node) readMember(ctx context.Context) {
	var stored *redis.SliceCmd
	var clock *redis.TimeCmd
	missing := n.ask(ctx, "hmget", func(ctx context.Context) error {
		pipe := n.rdb.Pipeline()
		stored, clock = pipe.HMGet(ctx, n.e.cfg.Prefix+":quorum", "run", "list", "after", "longest"), pipe.Time(ctx)
		_, err := pipe.Exec(ctx)
		return err
	})
	if missing != "" {
		n.add(checkQuorum, Warn, "unknown: %s", missing)
		return
	}
	texts := make([]string, 4)
	for i, value := range stored.Val() {
		texts[i], _ = value.(string)
	}
	n.member = &member{run: n.info["run_id"], joined: texts[0], list: texts[1], longest: texts[3]}
	if parts := strings.Split(texts[1], "/"); len(parts) > 1 {
		n.member.number, n.member.size = parts[0], parts[1]
	}
	if after, err := strconv.ParseInt(texts[2], 10, 64); err == nil {
		n.member.waits = max(0, time.UnixMilli(after).Sub(clock.Val()))
	}
}

func (e *examination) compareMembers() {
	var known []*node
	runs := map[string]*node{}
	used := false // somebody has used these servers as a quorum
	for _, n := range e.nodes {
		if n.member == nil {
			continue
		}
		known = append(known, n)
		used = used || n.member.list != ""
		run := n.member.run
		if same := runs[run]; same != nil && run != "" {
			e.add("", checkQuorum, Fail, fmt.Sprintf("%s and %s are the same server", same.name, n.name))
		}
		runs[run] = n
	}
	if !used {
		e.add("", checkQuorum, OK, "no server has been used as one of a quorum yet")
		return
	}
	lists, names, longest := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, n := range known {
		m := n.member
		n.first(checkQuorum,
			when(m.list == "", Warn, "the server has no data of the quorum; it grants nothing until a client has let it in, and then for MaxTTL"),
			when(m.run != "" && m.joined != m.run, Warn, "the server has restarted; it grants nothing until a client has let it in, and then for MaxTTL"),
			when(m.waits > 0, Warn, "the server grants nothing for another %s", short(m.waits)),
			when(true, OK, "list %s of %s servers, MaxTTL %s ms", m.number, m.size, m.longest))
		if m.list == "" {
			continue
		}
		lists[m.number], names[m.list], longest[m.longest] = true, true, true
		if m.size != strconv.Itoa(len(e.nodes)) {
			e.add("", checkQuorum, Warn, fmt.Sprintf("the list of %s has %s servers, and %d were given", n.name, m.size, len(e.nodes)))
		}
	}
	switch {
	case len(lists) > 1:
		e.add("", checkQuorum, Fail, "the servers have different lists")
	case len(names) > 1:
		e.add("", checkQuorum, Warn, "the servers have different servers under one number; a client mends this, or says that it has other servers")
	}
	if len(longest) > 1 {
		e.add("", checkQuorum, Warn, "the servers have different MaxTTL")
	}
}
