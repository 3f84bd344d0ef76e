package conn

import "time"

// A silence measures round trips and how long the server may send nothing. pipe.mu guards it.
type silence struct {
	timer     *time.Timer
	running   bool          // state of timer
	limit     time.Duration // shortest limit of the written calls
	roundTrip time.Duration // moving average
	sample    uint64        // id of the measured command, or 0
}

// minSilence and maxSilence bound the time without a reply after which another connection is made. That time is a third
// of the shortest timeout among the written calls, but at least one and a half round trips.
const (
	minSilence = 10 * time.Millisecond
	maxSilence = time.Second
)

func silenceLimit(timeout time.Duration) time.Duration {
	return min(max(timeout/3, minSilence), maxSilence)
}

// allowed returns how long a reply may take.
func (s *silence) allowed() time.Duration { return max(s.limit, s.roundTrip+s.roundTrip/2) }

// measure uses one round trip at a time as a sample, because an outage delays many replies at once. A shorter one
// counts in full: the network is fast. A longer one may be the end of an outage, and counts for an eighth.
func (s *silence) measure(id uint64, trip time.Duration) {
	if id != s.sample {
		return
	}
	s.sample = 0
	if trip >= s.roundTrip {
		s.roundTrip += (trip - s.roundTrip) / 8
		return
	}
	if s.roundTrip+s.roundTrip/2 > s.limit {
		s.running = false // the timer may run for too long
	}
	s.roundTrip = trip
}
