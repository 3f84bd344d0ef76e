package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A RunID identifies a run of a job: the run of a tick, or a triggered run. Two runs have the same
// RunID only if they are runs of one tick, or reruns of one triggered run.
type RunID struct {
	// Tick is the scheduled instant in UTC. For a triggered run, it is when it was requested; of
	// several in one millisecond, each has its own.
	Tick      time.Time `json:"tick,omitzero"`
	Triggered bool      `json:"triggered,omitempty"`
}

// RunOf returns the RunID with that Key.
func RunOf(key int64) RunID {
	if key < 0 {
		return RunID{time.UnixMilli(-key).UTC(), true}
	}
	return RunID{time.UnixMilli(key).UTC(), false}
}

// Key returns a number that no other run of the job has: of a tick, the milliseconds since 1970. The
// number of a triggered run is negative, so no tick has it, and each one is less than every tick.
func (r RunID) Key() int64 {
	if r.Triggered {
		return -r.Tick.UnixMilli()
	}
	return r.Tick.UnixMilli()
}

const triggerPrefix = "trigger/"

// Name returns the text that ParseRunID reads: an instant such as 2026-01-02T15:04:05Z, with the
// prefix "trigger/" for a triggered run.
func (r RunID) Name() string {
	name := r.Tick.UTC().Format("2006-01-02T15:04:05.999Z07:00")
	if r.Triggered {
		return triggerPrefix + name
	}
	return name
}

// ParseRunID reads a Name.
func ParseRunID(name string) (RunID, error) {
	text, triggered := strings.CutPrefix(name, triggerPrefix)
	tick, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return RunID{}, fmt.Errorf("singleton: the run is %q; it must be an instant such as 2026-01-02T15:04:05Z, "+
			"or for a triggered run trigger/2026-01-02T15:04:05Z", name)
	}
	return RunID{tick.UTC(), triggered}, nil
}

func (r RunID) text() string { return decimal(r.Key()) }

// readRunID reads a text; empty is the zero RunID.
func readRunID(text string) (RunID, error) {
	if text == "" {
		return RunID{}, nil
	}
	key, err := strconv.ParseInt(text, 10, 64)
	return RunOf(key), err
}
