package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// The table of rights is made from what the rooms declare.
func TestTableOfRights(t *testing.T) {
	t.Parallel()
	text := testenv.Call(os.ReadFile("SECURITY.md")).Must(t)
	needs := map[string]lock.Needs{
		doctor.UseMutex: lock.MutexNeeds(), doctor.UseOwned: lock.OwnedNeeds(), doctor.UseElection: lock.NeedsOf(election.Election{}),
		doctor.UsePartitions: lock.NeedsOf(partition.Set{}), doctor.UseJob: lock.NeedsOf(singleton.Job{}),
	}
	row := func(use string, rules []string) string {
		return "| " + use + " | `" + strings.Join(rules, " ") + "` |\n"
	}
	var table strings.Builder
	for _, use := range doctor.Uses() {
		table.WriteString(row(use, testenv.Rights(t, needs[use], false)))
	}
	for _, use := range []string{doctor.UseMutex, doctor.UseElection} {
		table.WriteString(row(use+" on a quorum", testenv.Rights(t, needs[use], true)))
	}
	if !strings.Contains(string(text), "\n|---|---|\n"+table.String()+"\n") {
		t.Errorf("SECURITY.md needs the rows\n%s", &table)
	}
}
