package cli

import "github.com/noonlock/noonlock/internal/overview"

// A kind is a kind of things, with what get and describe show of it.
type kind struct {
	overview.Kind
	list, one string
}

var (
	lockKind     = kind{overview.Locks, "Locks that are held or have waiters", "Show the holders and waiters of a lock"}
	electionKind = kind{
		overview.Elections, "Elections that had a leader within the last week",
		"Show the leader and the candidates of an election",
	}
	jobKind = kind{
		overview.Jobs, "Jobs that have a ledger",
		"Show the state, the schedule and the newest runs of a job, and why attempts failed",
	}
	partitionKind = kind{
		overview.Partitions, "Sets of partitions that replicas share",
		"Show the leader and the token of each partition of a set",
	}
	kinds = []kind{lockKind, electionKind, jobKind, partitionKind}
)
