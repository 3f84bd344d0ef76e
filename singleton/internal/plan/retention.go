package plan

import (
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// Retention returns how long a ledger is kept after its last use. It must exceed the
// longest interval of the schedule by far: without the ledger a tick could run twice.
func Retention(s ticks.Schedule) time.Duration {
	const most = 50 * 365 * 24 * time.Hour
	if s.Next(time.Now()).IsZero() {
		return 365 * 24 * time.Hour // it is only triggered
	}
	return min(2*min(longestInterval(s, time.Now()), most/2), most) + 30*24*time.Hour
}

// longestInterval returns the longest interval of the schedule in the next nine years, which have two leap years, and
// of a rarer schedule, that of four ticks. The result may be up to ten days too short: shorter intervals, which do
// not affect the retention, are skipped.
func longestInterval(s ticks.Schedule, now time.Time) (longest time.Duration) {
	at := now
	for n := 0; n < 4 || at.Sub(now) < 9*365*24*time.Hour; n++ {
		next := s.Next(at)
		if next.IsZero() {
			break
		}
		longest = max(longest, next.Sub(at))
		at = Later(next, at.Add(10*24*time.Hour))
	}
	return longest
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
