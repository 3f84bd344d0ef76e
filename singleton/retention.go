package singleton

import "time"

// retention is how long a ledger must outlive its last use: well beyond the schedule's
// longest interval.
func retention(s Schedule) time.Duration {
	const most = 50 * 365 * 24 * time.Hour
	return min(2*min(longestInterval(s, time.Now()), most/2), most) + 30*24*time.Hour
}

// longestInterval is the longest pause of the schedule in the years to come, less ten
// days at most. It looks for long pauses only: shorter ones do not matter.
func longestInterval(s Schedule, now time.Time) (longest time.Duration) {
	const (
		step  = 10 * 24 * time.Hour
		years = 9 * 365 * 24 * time.Hour // two leap years
		pause = 4                        // of those that are rarer
	)
	at := now
	for pauses := 0; at.Sub(now) < years || pauses < pause; {
		next := s.Next(at)
		if next.IsZero() {
			break
		}
		interval := next.Sub(at)
		longest = max(longest, interval)
		if interval < step {
			if at.Sub(now) >= years {
				break
			}
			at = at.Add(step)
			continue
		}
		pauses++
		at = next
	}
	return longest
}
