package conn

import "time"

// A silence notices that a server does not answer on a Pipe. Pipe.mu guards it.
type silence struct {
	timer    *time.Timer
	watching bool          // the timer runs
	patience time.Duration // shortest one of the calls that are written
	usual    time.Duration // round trip
	sample   uint64        // id of the command whose round trip is measured; 0 if there is none
}

const (
	// leastPatience and mostPatience limit the time without a reply after which another connection is made. It is a third of
	// the shortest timeout among the calls that are written, but half as much again as the usual round trip at least.
	leastPatience = 10 * time.Millisecond
	mostPatience  = time.Second
)

func patienceOf(c *call) time.Duration { return min(max(c.timeout/3, leastPatience), mostPatience) }

// watch makes the timer run for calls with that patience. The caller holds mu.
func (p *Pipe) watch(patience time.Duration) {
	if len(p.written) > 0 && (!p.watching || patience < p.patience) {
		p.watching, p.patience = true, patience
		p.timer.Reset(p.silentIn())
	}
}

// silentIn returns in how long the server is silent, unless something arrives. The caller holds mu.
func (p *Pipe) silentIn() time.Duration {
	return max(p.written[0].sent, time.Duration(p.lastRead.Load())) + p.allowed() - p.opt.Now()
}

// allowed returns how long a reply may take. The server answers nothing during WAIT. The caller holds mu.
func (p *Pipe) allowed() time.Duration {
	allowed := max(p.patience, p.usual+p.usual/2)
	if len(p.written) > 0 && p.written[0].kind == slotWait {
		allowed += p.acks.times[0]
	}
	return allowed
}

// measure takes a round trip as a sample, one at a time: an outage delays many replies, and is one sample. A quick reply
// shows that the network is quick, and a slow one may be the end of an outage. The caller holds mu.
func (p *Pipe) measure(s slot, now time.Duration) {
	if s.id != p.sample {
		return
	}
	p.sample = 0
	trip := now - s.sent
	if trip >= p.usual {
		p.usual += (trip - p.usual) / 8
		return
	}
	if p.usual+p.usual/2 > p.patience {
		p.watching = false // the timer may run for too long
	}
	p.usual = trip
}

// checkSilence is called by the timer.
func (p *Pipe) checkSilence() {
	p.mu.Lock()
	switch {
	case p.err != nil:
	case p.draining:
		if left := p.lastCaller() - p.opt.Now(); left > 0 {
			p.timer.Reset(min(left, mostPatience)) // callers may leave earlier
			break
		}
		p.mu.Unlock()
		p.end(errRetired)
		return
	case len(p.written) == 0:
		p.watching = false
		if p.sleeping {
			p.out = nil // the source of a script needs more than most commands
		}
	default:
		p.patience = mostPatience
		for _, s := range p.written {
			if s.call != nil {
				p.patience = min(p.patience, patienceOf(s.call))
			}
		}
		if left := p.silentIn(); left > 0 {
			p.timer.Reset(left)
			break
		}
		p.watching = false
		p.mu.Unlock()
		p.owner.silent(p)
		return
	}
	p.mu.Unlock()
}

// lastCaller returns the time when no caller waits any more: each has left by itself then. The caller holds mu.
func (p *Pipe) lastCaller() (until time.Duration) {
	wait := func(c *call) {
		if c != nil && !c.hasLeft() {
			until = max(until, c.until+returnWithin)
		}
	}
	for _, s := range p.written {
		wait(s.call)
	}
	for _, r := range p.acks.pending {
		wait(r.call)
	}
	return until
}
