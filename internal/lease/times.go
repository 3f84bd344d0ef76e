package lease

import "time"

// Times are the timings of a lease.
type Times struct {
	// Valid is how long a grant or a renewal is valid, counted from before its request is sent.
	Valid time.Duration

	// Renew is the interval between renewals; 0: the lease is not renewed.
	Renew time.Duration

	// Retry is the pause after a failed renewal.
	Retry time.Duration

	// Try is the longest time to wait for an answer to a request.
	Try time.Duration
}

// Margin covers the drift between this machine's clock and the server's over one TTL.
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// leastTry is the shortest time that a renewal waits for its answer.
const leastTry = 10 * time.Millisecond

// try returns how long a renewal may stay unanswered before another one is sent: half of the remaining validity, so
// that time is left for further tries.
func (t *Times) try(left time.Duration) time.Duration {
	return max(leastTry, min(t.Try, left/2))
}
