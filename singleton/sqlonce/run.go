package sqlonce

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Run is one attempt at one tick of a job, as a ledger or a lock names it.
type Run struct {
	// Job is 1 to 200 bytes of UTF-8 without control characters and without space at either end.
	Job string
	// Tick is the scheduled instant, in whole milliseconds, after the Unix epoch and before the year 10000.
	Tick time.Time
	// Attempt is kept in the marker, for people. 0 to 2^31-1.
	Attempt int
	// Token is the fencing token of the attempt, 1 to 2^63-1. A later attempt has a greater one.
	Token uint64
	// Holder is kept in the marker, for people: up to 255 bytes of UTF-8 without control characters. It may be empty.
	Holder string
	// Overlap says that other ticks of the job may be run at the same time; set it to singleton.Run.Overlap. Token then
	// fences off its own tick only: a later tick has the greater token, and may be committed first. Without it a token
	// fences off the job, and the transactions of its ticks wait for each other.
	Overlap bool
}

const (
	maxJob    = 200
	maxHolder = 255
)

// Validate returns a *ConfigError for the first field that breaks its rule.
func (r Run) Validate() error {
	if err := validateJob("Run.Job", r.Job); err != nil {
		return err
	}
	if err := validateInstant("Run.Tick", r.Tick); err != nil {
		return err
	}
	if err := validateToken("Run.Token", r.Token); err != nil {
		return err
	}
	switch {
	case r.Attempt < 0 || r.Attempt > math.MaxInt32:
		return &ConfigError{"Run.Attempt", strconv.Itoa(r.Attempt), "0 to 2^31-1"}
	case len(r.Holder) > maxHolder || !plainText(r.Holder):
		return &ConfigError{
			"Run.Holder", excerpt(r.Holder),
			fmt.Sprintf("up to %d bytes of UTF-8 without control characters", maxHolder),
		}
	}
	return nil
}

// validateJob keeps out what databases do not tell apart: MySQL compares without regard to spaces at the end,
// PostgreSQL knows no NUL.
func validateJob(field, job string) error {
	if job == "" || len(job) > maxJob || !plainText(job) || strings.TrimSpace(job) != job {
		return &ConfigError{
			field, excerpt(job),
			fmt.Sprintf("1 to %d bytes of UTF-8 without control characters and without space at either end", maxJob),
		}
	}
	return nil
}

func validateInstant(field string, t time.Time) error {
	if t.UnixMilli() <= 0 || t.UTC().Year() > 9999 || t.Nanosecond()%int(time.Millisecond) != 0 {
		return &ConfigError{field, stamp(t), "whole milliseconds, after the Unix epoch and before the year 10000"}
	}
	return nil
}

func plainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// excerpt quotes the beginning of s, so that an error does not carry a megabyte of it.
func excerpt(s string) string {
	const shown = 60
	if len(s) <= shown {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(s[:shown]), len(s))
}
