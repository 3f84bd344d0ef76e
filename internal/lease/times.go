package lease

import "time"

// Times are the timings of a lease.
type Times struct {
	// Valid is how long a grant or a renewal counts, from before its request was sent.
	Valid time.Duration

	// Renew is the time from one renewal to the next; 0: the lease is not renewed.
	Renew time.Duration

	// Retry is the pause after a renewal that failed.
	Retry time.Duration

	// Try is how long an answer to a request is awaited, at most.
	Try time.Duration

	// MaxHold is how long the lease is renewed in all; 0: for ever.
	MaxHold time.Duration
}

// Margin covers the drift between this machine's clock and the server's over one TTL.
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// leastTry is the least time that a renewal has to be answered in.
const leastTry = 10 * time.Millisecond

// try is how long a renewal that is sent with so much validity left may be unanswered
// before another is sent: half of what is left, so that there is time for more tries,
// however many fail.
func (t *Times) try(left time.Duration) time.Duration {
	return max(leastTry, min(t.Try, left/2))
}
