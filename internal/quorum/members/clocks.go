package members

import (
	"sync"
	"time"
)

// clocks notices servers whose clock is stepped forward: locks of other clients may have expired there before their
// time, so grants of that server do not count for the longest TTL.
type clocks struct {
	maxTTL time.Duration

	mu      sync.Mutex
	servers []serverClock
}

// A serverClock bounds how far a server's clock is ahead of the time that has elapsed here. The exact difference is
// not known, because the server reads its clock at some time between request and answer.
type serverClock struct {
	min, max       time.Duration // bounds of the difference
	readAt         time.Duration // time of the last reading, zero before the first
	distrustsUntil time.Duration // end of the time in which grants do not count
}

// read records a server's clock, in µs, from the answer to a request that was sent and answered at these times. It
// returns by how much the clock was stepped forward since the last reading, or 0.
func (c *clocks) read(server int, clock int64, sent, now time.Duration) (step time.Duration) {
	at := time.Duration(clock) * time.Microsecond
	lowest, highest := at-now, at-sent
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.servers[server]
	slack := 50*time.Millisecond + (now-s.readAt)/1000 // the rates of two clocks may differ by up to 0.1 %
	step = lowest - s.max
	if s.readAt == 0 || step <= slack {
		step = 0
	} else {
		s.distrustsUntil = now + c.maxTTL
	}
	if s.readAt == 0 || step > 0 || highest < s.min-slack || highest-lowest <= s.max-s.min+slack {
		s.min, s.max, s.readAt = lowest, highest, max(1, now)
	}
	return step
}

// distrusts reports whether the clock of a server was stepped forward within the longest TTL. The step is unknown if
// the server granted nothing to this client before it.
func (c *clocks) distrusts(server int, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now < c.servers[server].distrustsUntil
}
