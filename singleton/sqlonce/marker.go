package sqlonce

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/noonlock/noonlock/internal/input"
)

// A Marker records that an attempt has applied a tick of a job. Do commits it together with
// the effect.
type Marker struct {
	// Job is 1 to 200 bytes of UTF-8 without control characters, and without space at
	// either end.
	Job string
	// Tick is the scheduled instant, in whole milliseconds, after the Unix epoch and before the year 10000.
	Tick time.Time
	// Triggered means that the run has no scheduled instant; set it to singleton.Run.Triggered. Tick is
	// then the instant of the request. The run differs from the scheduled run of an equal Tick.
	Triggered bool
	// ID is the id of a run of TriggerAt; set it to singleton.Run.ID. The tables then have a hash of ID as the
	// tick, and Prune keeps these rows.
	ID string
	// Attempt is stored for readers of the table. 0 to 2^31-1.
	Attempt int
	// Token is the fencing token of the attempt, 1 to 2^63-1. A later attempt has a greater one.
	Token uint64
	// Holder is stored for readers of the table. Up to 255 bytes of UTF-8 without control
	// characters; may be empty.
	Holder string
	// Overlap means that ticks of the job may overlap; set it to singleton.Run.Overlap.
	// Token then fences its own tick only, as a later tick has a greater token and may
	// commit first. Otherwise Token fences the whole job, and the transactions of its ticks
	// wait for each other. Overlap is not stored.
	Overlap bool
}

const (
	maxJob    = 200
	maxHolder = 255
)

// key returns the value of tick in the tables: negative for a triggered run, and less than any instant for an ID.
func (m Marker) key() int64 {
	if m.ID != "" {
		sum := sha256.Sum256([]byte(m.ID))
		return math.MinInt64 + int64(binary.BigEndian.Uint64(sum[:])>>2)
	}
	if m.Triggered {
		return -m.Tick.UnixMilli()
	}
	return m.Tick.UnixMilli()
}

// isOf reports whether m, a stored marker, is the one of the attempt with the marker own.
func (m *Marker) isOf(own Marker) bool { return m.Attempt == own.Attempt && m.Token == own.Token }

func (m Marker) fail(operation string, err error) error {
	return fmt.Errorf("sqlonce: job %q, tick %s: %s: %w", m.Job, stamp(m.Tick), operation, err)
}

func (m Marker) validate() error {
	err := cmp.Or(validateJob("Marker.Job", m.Job), validateInstant("Marker.Tick", m.Tick), validateToken("Marker.Token", m.Token))
	switch {
	case err != nil:
		return err
	case m.Attempt < 0 || m.Attempt > math.MaxInt32:
		return refuse("Marker.Attempt", strconv.Itoa(m.Attempt), "0 to 2^31-1")
	case len(m.Holder) > maxHolder || !plainText(m.Holder):
		return refuse("Marker.Holder", input.Quote(m.Holder), fmt.Sprintf("up to %d bytes of UTF-8 without control characters", maxHolder))
	}
	return nil
}

// validateJob refuses names that a database may confuse: MySQL ignores spaces at the end,
// and PostgreSQL accepts no NUL.
func validateJob(field, job string) error {
	if job == "" || len(job) > maxJob || !plainText(job) || strings.TrimSpace(job) != job {
		return refuse(field, input.Quote(job), fmt.Sprintf("1 to %d bytes of UTF-8 without control characters and without space at either end", maxJob))
	}
	return nil
}

func validateInstant(field string, t time.Time) error {
	if t.UnixMilli() <= 0 || t.UTC().Year() > 9999 || t.Nanosecond()%int(time.Millisecond) != 0 {
		return refuse(field, stamp(t), "whole milliseconds, after the Unix epoch and before the year 10000")
	}
	return nil
}

func validateToken(field string, token uint64) error {
	if token == 0 || token > math.MaxInt64 {
		return refuse(field, strconv.FormatUint(token, 10), "1 to 2^63-1")
	}
	return nil
}

func plainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
