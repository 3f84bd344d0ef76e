package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A RunID is a singleton.RunID, which has the documentation.
type RunID struct {
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

// Key returns a number that no other run of the job has. The scripts use it as the tick.
func (r RunID) Key() int64 {
	if r.Triggered {
		return -r.Tick.UnixMilli()
	}
	return r.Tick.UnixMilli()
}

const triggerPrefix = "trigger/"

// Name returns the text that ParseRunID reads.
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
