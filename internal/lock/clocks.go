package lock

import (
	"time"
)

// slewed is how far a clock may be ahead of what was expected without a step: it runs at another
// rate, by less than a thousandth.
func slewed(since time.Duration) time.Duration { return 50*time.Millisecond + since/1000 }

// readClock takes the clock (µs) that a server has answered to a request that began at a time. If it
// was stepped forward since the last one, locks of others may have expired there before their time.
func (m *members) readClock(server int, clock int64, began time.Duration) {
	now := m.c.clock.Ticks()
	at := time.Duration(clock) * time.Microsecond
	from, to := at-now, at-began
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.clocks[server]
	slack := slewed(now - s.read)
	step := from - s.to
	forward := s.read > 0 && step > slack
	if forward {
		s.distrust = now + m.longest
		m.c.log.Error(errStepped, "the clock of a server of the quorum was stepped; its grants do not count for MaxTTL", "server", m.targets[server].Addr, "by", step.Round(time.Millisecond).String())
	}
	if s.read == 0 || forward || to < s.from-slack || to-from <= s.to-s.from+slack {
		s.from, s.to, s.read = from, to, max(1, now)
	}
}

// distrusts reports whether the clock of a server was stepped forward within the longest TTL. A Client
// that has had no grant of the server before the step cannot know.
func (m *members) distrusts(server int) bool {
	now := m.c.clock.Ticks()
	m.mu.Lock()
	defer m.mu.Unlock()
	return now < m.clocks[server].distrust
}
