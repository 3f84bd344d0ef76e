package conn

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A pipe is a connection that carries the calls of many callers. One goroutine writes the queued calls in their order.
// The other one reads the replies and completes the calls in the same order. The answer to an abandoned call is
// dropped.
//
// A timer notices silence. It starts with the oldest write without a reply, and again with each byte that arrives. When
// it fires, the Line uses another pipe for new calls. The silent pipe still reads the replies to its written calls. It
// ends after the last of them, or after the deadline of the last caller.
type pipe struct {
	*Conn
	opt     *Options
	line    *Line
	made    time.Duration // start, by Options.Now
	expires time.Duration // end of ConnMaxLifetime by Options.Now, or 0

	answered atomic.Bool   // the server has answered a call
	lastRead atomic.Int64  // time when bytes last arrived, by Options.Now
	wake     chan struct{} // wakes the writer

	mu       sync.Mutex
	queue    queue  // calls to write
	written  []slot // expected replies, in their order
	sleeping bool   // state of the writer: it waits for wake
	draining bool   // no new calls are accepted
	err      error  // cause of the end, nil before the end
	acks     acks   // calls that wait for replicas
	silence  silence

	out []byte // bytes of the current write; the writer owns it, and while the writer sleeps, the holder of mu

	// Only the reader uses these.
	expected []slot  // copy of the slots of written, so that a reply is read without mu
	read     int     // number of slots in expected whose reply was read
	arrived  []reply // replies that were read and not delivered
	decided  []reply // final answers of calls, only used during a delivery
}

var errDrained = errors.New("lockcore: the connection was replaced")

// maxWritten limits the expected replies of a pipe, including the replies to abandoned calls.
const maxWritten = 1024

func newPipe(c *Conn, l *Line) *pipe {
	p := &pipe{Conn: c, opt: l.Options, line: l, made: l.Now(), wake: make(chan struct{}, 1)}
	if life := p.opt.Redis.ConnMaxLifetime; life > 0 {
		if jitter := int64(min(p.opt.Redis.ConnMaxLifetimeJitter, life)); jitter > 0 {
			life += time.Duration(rand.Int64N(2*jitter) - jitter)
		}
		p.expires = p.made + life
	}
	p.lastRead.Store(int64(p.made))
	p.silence.roundTrip = c.roundTrip
	p.silence.timer = time.AfterFunc(time.Hour, p.checkSilence) // limitSilence sets the time
	return p
}

// submit queues calls. It returns false if the pipe accepts no new calls.
func (p *pipe) submit(calls ...*call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.draining || p.needsReplacement() {
		return false
	}
	p.queue.add(calls...)
	p.wakeWriter()
	return true
}

// needsReplacement reports whether the credentials have changed, or the connection is older or longer idle than the
// user's options allow. The caller holds mu.
func (p *pipe) needsReplacement() bool {
	idle := p.opt.Redis.ConnMaxIdleTime
	return p.outdated.Load() || p.expires > 0 && p.opt.Now() >= p.expires ||
		idle > 0 && len(p.written) == 0 && p.opt.Now()-time.Duration(p.lastRead.Load()) >= idle
}

// wakeWriter wakes the writer if it has something to do. The caller holds mu.
func (p *pipe) wakeWriter() {
	if p.sleeping && (p.err != nil || p.mayWrite()) {
		p.sleeping = false
		p.wake <- struct{}{}
	}
}

// mayWrite reports whether there is something to write now. The caller holds mu.
func (p *pipe) mayWrite() bool {
	return len(p.queue.calls) > 0 && len(p.written) < maxWritten && p.acks.mayWrite() || p.acks.needsWaitCommand()
}

// isEmpty reports whether no written call is unanswered. The caller holds mu.
func (p *pipe) isEmpty() bool { return len(p.written) == 0 && len(p.acks.pending) == 0 }

// limitSilence starts the timer with a limit, or shortens the running timer to that limit. The caller holds mu.
func (p *pipe) limitSilence(limit time.Duration) {
	if s := &p.silence; len(p.written) > 0 && (!s.timerSet || limit < s.limit) {
		s.timerSet, s.limit = true, limit
		s.timer.Reset(p.untilSilent())
	}
}

// untilSilent returns the time until the server counts as silent. If a WAIT is to be answered next, the limit grows
// by its timeout: a server answers nothing on the connection while it waits for replicas. The caller holds mu.
func (p *pipe) untilSilent() time.Duration {
	allowed := p.silence.allowed()
	if p.written[0].kind == slotWait {
		allowed += p.acks.timeouts[0]
	}
	return max(p.written[0].sent, time.Duration(p.lastRead.Load())) + allowed - p.opt.Now()
}

// checkSilence is called by the timer.
func (p *pipe) checkSilence() {
	p.mu.Lock()
	switch s := &p.silence; {
	case p.err != nil:
	case p.draining:
		if left := p.lastDeadline() - p.opt.Now(); left > 0 {
			s.timer.Reset(min(left, maxSilence)) // callers may abandon their calls earlier
			break
		}
		p.mu.Unlock()
		p.end(errDrained)
		return
	case len(p.written) == 0:
		s.timerSet = false
		if p.sleeping {
			p.out = nil // an idle pipe keeps no buffer, which may be large after the source of a script
		}
	default:
		s.limit = maxSilence
		for _, w := range p.written {
			if w.call != nil {
				s.limit = min(s.limit, silenceLimit(w.call.timeout))
			}
		}
		if left := p.untilSilent(); left > 0 {
			s.timer.Reset(left)
			break
		}
		s.timerSet = false
		p.mu.Unlock()
		p.line.silent(p)
		return
	}
	p.mu.Unlock()
}

// lastDeadline returns the time at which all callers of written calls have left. The caller holds mu.
func (p *pipe) lastDeadline() (last time.Duration) {
	add := func(c *call) {
		if c != nil && !c.isAbandoned() {
			last = max(last, c.deadline+grace)
		}
	}
	for _, s := range p.written {
		add(s.call)
	}
	for _, r := range p.acks.pending {
		add(r.call)
	}
	return last
}

// drain makes the pipe accept no new calls. The pipe ends when no caller waits for a written call any more. drain
// returns the calls that were not written.
func (p *pipe) drain() []*call {
	p.mu.Lock()
	calls, empty := p.queue.takeAll(), p.isEmpty()
	if p.err == nil && !p.draining {
		p.draining = true
		p.silence.timer.Reset(min(p.lastDeadline()-p.opt.Now(), maxSilence))
	}
	p.mu.Unlock()
	if empty {
		p.end(errDrained)
	}
	return calls
}

// end ends the pipe. Written calls end with ErrUnknown. The Line gets the calls that were not written.
func (p *pipe) end(cause error) {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.err = cause
	p.silence.timer.Stop()
	written, pending, queue := p.written, p.acks.pending, p.queue.takeAll()
	p.written, p.acks.pending = nil, nil
	p.wakeWriter()
	p.mu.Unlock()
	for _, r := range pending {
		written = append(written, r.slot)
	}
	for _, s := range written {
		if s.call != nil {
			p.complete(reply{s, Answer{Err: errors.Join(ErrUnknown, cause)}})
		}
	}
	p.line.ended(p, queue)
	p.Drop()
}

// complete completes a call.
func (p *pipe) complete(r reply) {
	if r.Err != nil && p.opt.Failed != nil {
		p.opt.Failed(r.sent, r.Err)
	}
	r.call.complete(r.Answer)
}

// A silence measures round trips and how long the server may send nothing. pipe.mu guards it.
type silence struct {
	timer     *time.Timer
	timerSet  bool          // timer is set to the end of limit
	limit     time.Duration // shortest limit of the written calls
	roundTrip time.Duration // moving average
	sample    uint64        // id of the measured command, or 0
}

// minSilence and maxSilence bound the limit of a call. The limit is a third of the timeout of the call, so that another
// connection is made in time for a second try.
const (
	minSilence = 10 * time.Millisecond
	maxSilence = time.Second
)

func silenceLimit(timeout time.Duration) time.Duration {
	return min(max(timeout/3, minSilence), maxSilence)
}

// allowed returns how long a reply may take: the limit, but at least one and a half round trips.
func (s *silence) allowed() time.Duration { return max(s.limit, s.roundTrip+s.roundTrip/2) }

// measure adds a round trip to the average, if it belongs to the sampled command. One command at a time is sampled,
// because an outage delays many replies at once. A round trip below the average becomes the average: the network is
// fast. A longer one may come from an outage, and counts for an eighth.
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
		s.timerSet = false // the timer was set for a slower network, and the next write sets it again
	}
	s.roundTrip = trip
}
