package explorer

import (
	"cmp"
	"runtime"
	"testing"
)

// Each rule of the clients, and each guard of the scripts, is needed: without it, a promise is
// broken.
func TestQuorumNeedsItsRules(t *testing.T) {
	l := newLibrary(t)
	workers := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		name string
		flaw flaw
		file string
		old  string
		new  string
		quorumTrial
	}{
		{flaw: minorityGrants, quorumTrial: quorumTrial{1, 0, 0, 8}},
		{flaw: minorityConfirms, quorumTrial: quorumTrial{2, 0, 0, 8}},
		{flaw: firstProposal, quorumTrial: quorumTrial{2, 1, 0, 8}},
		{flaw: lateStart, quorumTrial: quorumTrial{2, 0, 0, 8}},
		{flaw: oneReader, quorumTrial: quorumTrial{1, 0, 1, 14}},
		{flaw: strangerAdmits, quorumTrial: quorumTrial{1, 0, 0, 2}},
		{name: "the token is committed", file: "part_extend", old: "redis.call('HSET', marker, 'top', token)", new: "", quorumTrial: quorumTrial{1, 0, 0, 8}},
		{name: "the run counts, not only the data", file: "part_member", old: "m[1] ~= run", new: "not m[1]", quorumTrial: quorumTrial{1, 0, 1, 14}},
		{name: "a server waits after its return", file: "part_member", old: "clock < tonumber(m[3]) * 1000", new: "false", quorumTrial: quorumTrial{2, 0, 1, 10}},
		{name: "the wait is one TTL", file: "quorum_join", old: "* 1000 + math.ceil(tonumber(time[2]) / 1000) + longest", new: "* 1000 + math.ceil(tonumber(time[2]) / 1000)", quorumTrial: quorumTrial{2, 0, 1, 10}},
		{name: "the other servers know the last token", file: "quorum_join", old: "local longest, top, wait = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]", new: "local longest, top, wait = tonumber(ARGV[6]), 4000000000000000, ARGV[8]", quorumTrial: quorumTrial{1, 0, 1, 14}},
		{name: "a lock of another is not renewed", file: "part_extend", old: "elseif holder ~= me then", new: "elseif false then", quorumTrial: quorumTrial{2, 0, 0, 10}},
	} {
		name := cmp.Or(c.name, flawNames[c.flaw])
		t.Run(name, func(t *testing.T) {
			if !deep() && c.depth == 14 {
				t.Skip("a deep exploration: .ci/run runs it after a change of the scripts, make nightly always")
			}
			var edits []edit
			if c.file != "" {
				edits = l.without(t, c.file, c.old, c.new)
			}
			m := c.model(t, l, edits, workers, c.flaw)
			f := search(m, c.depth, 1_500_000, workers)
			if f.broken == "" {
				t.Errorf("nothing notices it: %v", f)
			}
			t.Log(f)
		})
	}
}
