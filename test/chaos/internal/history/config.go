package history

import "time"

// A Config is the argument of a worker, as JSON, and what a judge has to know of a run.
type Config struct {
	Process     string            // such as w2.1
	Folder      string            // of the history
	Library     string            // a peer, whose mutex is used; empty: noonlock
	Kinds       []string          // of locks, all used at once
	URLs        []string          // of one deployment, or of each server of a quorum
	Via         map[string]string // address of each server -> address of its proxy
	Resource    string            // address
	Database    string            // DSN of MySQL, for jobs
	Seed        uint64
	TTL         time.Duration
	LockDelay   time.Duration
	MinReplicas int
	Slots       int           // of the semaphore
	Parts       int           // number of partitions
	Every       time.Duration // between two ticks
	Holds       int           // one lease in so many is held for several TTLs
	Slow        time.Duration // at most, between the check of a lease and its write
	Peers       bool          // libraries are compared: waiters may take one TTL longer
	Rate        float64       // of the clock of leases; 0: 1
	Epoch       int64         // CLOCK_BOOTTIME of the Unix epoch, in ns
}

// Quorum reports whether locks are on several servers.
func (c *Config) Quorum() bool { return len(c.URLs) > 1 }
