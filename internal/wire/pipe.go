package wire

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A pipe is a connection that is set up. Calls are written on it in their order, while others wait for their
// answers, and are answered in the same order.
//
//	           a write begins: one reading of the clock stamps its calls
//	queued ─────────────────────────────────────────────────────────────► written ──► answered
//	   │ the caller leaves: the call is skipped          the caller leaves:  │
//	   │ the pipe ends: it goes to the next one          the answer is       │ the pipe ends
//	   ▼                                                 thrown away         ▼
//	never sent                                                            unknown
//
// Who finds nobody writing, writes, and a goroutine writes what is queued meanwhile. A caller that is alone reads its
// answer itself, for a moment. Otherwise, another goroutine reads.
//
// The reply to a script names its request. Other replies, and refusals, name nothing. They count when the reply
// to a later script is the right one. If no script was sent after them, one is that does nothing, see proof.
//
// With Config.Replicas, only one write is under way: WAIT may end it, and would delay what is behind it.
type pipe struct {
	conn   net.Conn
	reader *bufio.Reader
	addr   string    // where it leads to
	until  time.Time // the end of the user's ConnMaxLifetime; zero: none
	idle   time.Duration
	socket syscall.RawConn // nil: a write may block for long

	line *line         // nil during the setup
	made time.Duration // when it began to serve, by line.now

	outdated atomic.Bool // no new call uses it

	mu       sync.Mutex
	unwatch  func() error // ends the watch of the credentials; nil: there is none
	queue    []*call
	written  []slot // what is not answered, in the order of the writes
	named    int    // slots that name their request
	unproved []reply
	writing  bool
	reading  bool          // somebody reads, or will
	alone    int           // replies in a row after which nothing was to be read
	live     int           // calls that are written, and whose callers wait
	leaves   bool          // it ends when no caller waits
	silent   bool          // nothing was answered for too long; another one is made
	heard    time.Duration // when the last answer arrived, by line.now
	takes    time.Duration // how long answers have taken lately, at most
	why      error         // why it has ended; nil: it works

	// Only who writes uses these.
	out  []byte
	next uint64 // the id of the next command
}

// A slot is the place of one reply.
type slot struct {
	call  *call  // nil: the reply is to a command of our own
	round *round // nil: it needs no replicas
	proof bool
	named bool
	sha   bool // it may be sent again with the source of the script
	id    uint64
	sent  time.Duration
}

// A reply is an answer that is not proved yet, or goes to its call.
type reply struct {
	slot
	Answer
}

// A round is the calls of one write that need replicas. WAIT covers every write of the round, as a replica
// acknowledges the writes in their order.
type round struct {
	want  int
	calls []*call

	mu      sync.Mutex // as the pipe may end while a reply is settled
	left    int        // replies that are missing
	answers []Answer   // to the calls
	tail    []Answer   // to the marks and WAIT
}

// A call is a request on its way.
type call struct {
	request Request
	timeout time.Duration // of the caller
	until   time.Duration // its end, by line.now
	state   atomic.Int32
	pipe    *pipe         // that it was written on
	sent    time.Duration // just before the write, by line.now
	answer  Answer
	done    chan struct{} // gets a value once answer is set; nothing uses the call after that
	timer   *time.Timer   // of the caller
}

const (
	callQueued = iota
	callWritten
	callAnswered
	callLeft // by its caller
)

// answered gives the call its answer. It returns false if the caller has left.
func (c *call) answered(a Answer) bool {
	if !c.state.CompareAndSwap(callWritten, callAnswered) && !c.state.CompareAndSwap(callQueued, callAnswered) {
		return false
	}
	c.answer = a
	c.done <- struct{}{}
	return true
}

const (
	readSize = 4 << 10

	// maxWritten limits the commands that are not answered on a pipe. Those of callers that have left count.
	maxWritten = 1024

	// maxInline is how much a caller writes itself. The socket has room for that even if the server reads nothing.
	maxInline = 4 << 10

	// loneFor is how long a caller that is alone waits in a read. Its context cannot end that. It is alone after so many
	// replies behind which nothing was to be read.
	loneFor   = time.Millisecond
	loneAfter = 8

	// checkIdle is after which time without answers a pipe is checked before it is used: the server may have closed it.
	checkIdle = time.Millisecond
)

func newPipe(conn net.Conn, opt *redis.Options) *pipe {
	p := &pipe{
		conn: conn, reader: bufio.NewReaderSize(conn, readSize), addr: remoteAddr(conn), idle: opt.ConnMaxIdleTime,
		next: rand.Uint64() >> 16,
	}
	raw := conn
	if wrapped, ok := raw.(interface{ NetConn() net.Conn }); ok { // of TLS
		raw = wrapped.NetConn()
	}
	switch c := raw.(type) {
	case *net.TCPConn:
		p.socket, _ = c.SyscallConn()
	case *net.UnixConn:
		p.socket, _ = c.SyscallConn()
	}
	if life := opt.ConnMaxLifetime; life > 0 {
		if jitter := int64(min(opt.ConnMaxLifetimeJitter, life)); jitter > 0 {
			life += time.Duration(rand.Int64N(2*jitter) - jitter)
		}
		p.until = time.Now().Add(life)
	}
	return p
}

// exchange sends commands of the setup in one round trip. They need no proof: nothing was sent before.
func (p *pipe) exchange(commands ...Request) ([]Answer, error) {
	var out []byte
	first := p.next
	for _, r := range commands {
		out = p.append(out, r)
	}
	began := time.Now()
	_, _ = p.conn.Write(out) // if it fails, the server may have said why: the read says it, or fails, too
	answers := make([]Answer, len(commands))
	for i, r := range commands {
		a, err := p.readAnswer(r.named, first+uint64(i))
		if err != nil {
			return nil, err
		}
		answers[i] = a
	}
	p.takes = time.Since(began)
	return answers, nil
}

// append appends a command, whose id is next.
func (p *pipe) append(b []byte, r Request) []byte {
	id := p.next
	p.next++
	if r.named {
		return appendNamed(b, r.args, id)
	}
	return appendCommand(b, r.args)
}

// readAnswer reads one reply. After an error, the connection cannot be used.
func (p *pipe) readAnswer(named bool, id uint64) (a Answer, err error) {
	if named {
		a.Value, err = readNamed(p.reader, id)
	} else {
		a.Value, err = readReply(p.reader)
	}
	if refused, ok := err.(*refusal); ok { //nolint:errorlint // the codec does not wrap it
		a.Err, err = plainRefusal(refused), nil
	}
	return a, err
}

// use begins to serve a line.
func (p *pipe) use(l *line) {
	p.line, p.made = l, l.now()
	p.heard = p.made
	if p.socket == nil { // nobody would notice its end
		p.reading = true
		go p.read()
	}
}

// submit queues calls, before all others if first is true. It returns false if the pipe has ended.
func (p *pipe) submit(first bool, calls ...*call) bool {
	p.mu.Lock()
	if p.why != nil || p.leaves {
		p.mu.Unlock()
		return false
	}
	if p.socket != nil && len(p.written) == 0 && p.line.now()-p.heard > checkIdle && isClosed(p.socket) {
		p.mu.Unlock()
		p.end(io.EOF)
		return false
	}
	if first {
		p.queue = slices.Concat(calls, p.queue)
	} else {
		p.queue = append(p.queue, calls...)
	}
	if !p.mayWrite() {
		p.mu.Unlock()
		return true
	}
	p.writing = true
	if p.socket == nil || len(p.written) > 1 || len(p.queue) > 16 {
		p.mu.Unlock()
		go p.writeQueue()
		return true
	}
	out, reads := p.encode()
	p.mu.Unlock()
	switch {
	case len(out) > maxInline:
		go func() {
			if p.flush(out) {
				p.writeQueue()
			}
		}()
	case p.flush(out):
		go p.writeQueue()
	case reads && len(calls) == 1:
		p.readAlone(calls[0])
		return true
	}
	if reads {
		go p.read()
	}
	return true
}

// mayWrite reports whether a write can begin. The caller holds mu.
func (p *pipe) mayWrite() bool {
	if p.writing || p.why != nil {
		return false
	}
	calls := len(p.queue) > 0 && len(p.written) < maxWritten && (p.line.replicas == 0 || len(p.written) == 0)
	return calls || len(p.unproved) > 0 && p.named == 0
}

// writeQueue writes what is queued. The caller has set writing.
func (p *pipe) writeQueue() {
	for {
		runtime.Gosched() // callers that have their answers queue the next call
		p.mu.Lock()
		if p.why != nil {
			p.writing = false
			p.mu.Unlock()
			return
		}
		out, reads := p.encode()
		p.mu.Unlock()
		if reads {
			go p.read()
		}
		if !p.flush(out) {
			return
		}
	}
}

// flush writes what was encoded. It reports whether there is more to write. The caller has set writing, and must
// write that.
func (p *pipe) flush(out []byte) (more bool) {
	if len(out) > 0 {
		if _, err := p.conn.Write(out); err != nil {
			p.end(err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	if cap(p.out) > keptBuffer {
		p.out = nil
	}
	more = p.mayWrite()
	p.writing = more
	return more
}

// encode makes the bytes of the next write, and a slot for each reply to it. If reads is true, the caller must see to
// it that somebody reads. The caller holds mu.
func (p *pipe) encode() (out []byte, reads bool) {
	p.out = p.out[:0]
	now, ticks := p.line.now(), p.line.ticks()
	var r *round // nil: no call needs replicas
	n := 0
	within, longest := time.Duration(0), time.Duration(0)
	var marks []string
	for ; n < len(p.queue) && len(p.written) < maxWritten && len(p.out) < keptBuffer; n++ {
		c := p.queue[n]
		if c.request.grants {
			if err := p.line.dials.history.refusal(); err != nil {
				c.answered(Answer{Err: err})
				continue
			}
		}
		c.pipe, c.sent = p, now
		if !c.state.CompareAndSwap(callQueued, callWritten) {
			continue
		}
		c.request.stampAt(ticks)
		if c.request.asking {
			p.add(slot{sent: now}, Command("asking"))
		}
		p.live++
		s := slot{call: c, named: c.request.named, sha: c.request.script != nil, sent: now}
		if w := c.request.within; w > 0 && p.line.replicas > 0 {
			if r == nil {
				r, within = &round{want: p.line.replicas}, w
			}
			s.round = r
			r.calls, r.answers = append(r.calls, c), append(r.answers, Answer{})
			if c.request.mark != "" {
				marks = append(marks, c.request.mark)
			}
			within, longest = min(within, w), max(longest, c.until-now)
		}
		p.add(s, c.request)
	}
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	if r != nil {
		for _, mark := range marks {
			p.add(slot{round: r, sent: now}, Command("set", mark, "", "px", markTTL))
		}
		p.add(slot{round: r, sent: now}, Command("wait", r.want, max(1, min(within, longest/2).Milliseconds()))) // 0 would be for ever; the rest is for the round trip
		r.left = len(r.calls) + len(marks) + 1
	}
	if n := len(p.written); n > 0 && !p.written[n-1].named && len(p.out) > 0 || len(p.unproved) > 0 && p.named == 0 {
		p.add(slot{proof: true, named: true, sent: now}, proof)
	}
	reads = !p.reading && len(p.written) > 0
	p.reading = p.reading || reads
	return p.out, reads
}

// add appends a command and its slot. The caller holds mu.
func (p *pipe) add(s slot, r Request) {
	s.id = p.next
	p.out = p.append(p.out, r)
	if s.named {
		p.named++
	}
	p.written = append(p.written, s)
}

// read reads until the callers are alone, or the pipe has ended. close makes a read fail, and does not wait for it.
func (p *pipe) read() {
	for {
		if p.readOne() {
			return
		}
	}
}

// readAlone reads until a call is answered, for a moment, and lets a goroutine read the rest.
func (p *pipe) readAlone(c *call) {
	for {
		_ = p.conn.SetReadDeadline(time.Now().Add(loneFor)) // if it fails, the read fails, too
		_, err := p.reader.Peek(1)
		_ = p.conn.SetReadDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			go p.read()
			return
		}
		if p.readOne() {
			return
		}
		if c.state.Load() != callWritten {
			go p.read()
			return
		}
	}
}

// readOne reads what comes next. It reports whether that was all: the pipe has ended, or nothing is left to be read, and
// the next caller can do that.
func (p *pipe) readOne() (over bool) {
	kind, err := p.reader.Peek(1)
	if err == nil && (kind[0] == '>' || kind[0] == '|') { // a message, or what belongs to no reply
		if _, _, err = readValue(p.reader, 0); err == nil {
			return false
		}
	}
	if err == nil {
		over, err = p.readSlot()
	}
	if err != nil {
		p.end(err)
		return true
	}
	return over
}

// readSlot reads the reply for the first slot. A reply for none was not asked for. over: nothing is left to be read.
func (p *pipe) readSlot() (over bool, _ error) {
	p.mu.Lock()
	if len(p.written) == 0 {
		p.mu.Unlock()
		return false, errOtherAnswer
	}
	s := p.written[0]
	p.mu.Unlock()
	a, err := p.readAnswer(s.named, s.id)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	if p.why != nil {
		p.mu.Unlock()
		return false, p.why
	}
	p.written = p.written[1:]
	revived := p.silent
	p.heard, p.silent = p.line.now(), false
	p.takes = max(p.takes-p.takes/8, p.heard-s.sent)
	if s.named {
		p.named--
	}
	var one [1]reply
	ready := one[:0]
	switch named := s.named && a.Err == nil; {
	case named || s.proof:
		ready, p.unproved = append(append(ready, p.unproved...), reply{s, a}), nil
	case s.sha && isNoScript(a.Err): // the request is sent again, and finds out
		ready = append(ready, reply{s, a})
	default:
		p.unproved = append(p.unproved, reply{s, a})
	}
	write := p.mayWrite()
	p.writing = p.writing || write
	if p.alone++; len(p.written) > 0 {
		p.alone = 0
	}
	over = p.socket != nil && len(p.written) == 0 && !p.writing && p.alone > loneAfter
	p.reading = !over
	p.mu.Unlock()
	for _, r := range ready {
		p.settle(r)
	}
	if write {
		go p.writeQueue()
	}
	if revived {
		p.line.revived(p)
	}
	p.leaveIfIdle()
	return over, nil
}

// settle gives a reply to its call, once it counts.
func (p *pipe) settle(r reply) {
	switch {
	case r.round != nil:
		p.settleRound(r)
	case r.call != nil:
		p.give(r.call, r.Answer)
	}
}

// give gives an answer to its call, and to those who follow the server.
func (p *pipe) give(c *call, a Answer) {
	if a.Err != nil && p.line.refused != nil {
		p.line.refused(c.sent, a.Err)
	}
	if c.answered(a) {
		p.mu.Lock()
		p.live--
		p.mu.Unlock()
	}
}

// settleRound collects the replies of a round. When all are there, they count if enough replicas have the writes.
func (p *pipe) settleRound(r reply) {
	round := r.round
	round.mu.Lock()
	if r.call == nil {
		round.tail = append(round.tail, r.Answer)
	} else {
		round.answers[slices.Index(round.calls, r.call)] = r.Answer
	}
	round.left--
	whole := round.left == 0
	round.mu.Unlock()
	if !whole {
		return
	}
	err := shortage(round.tail, round.want)
	for i, c := range round.calls {
		if round.answers[i].Err == nil {
			round.answers[i].Err = err
		}
		p.give(c, round.answers[i])
	}
}

// end ends the pipe, and gives the calls that are not written to the line.
func (p *pipe) end(why error) {
	p.mu.Lock()
	if p.why != nil {
		p.mu.Unlock()
		return
	}
	p.why = why
	written, unproved, queue, unwatch := p.written, p.unproved, p.queue, p.unwatch
	p.written, p.unproved, p.queue, p.unwatch = nil, nil, nil, nil
	p.mu.Unlock()
	_, odd := why.(*protocolError) //nolint:errorlint // the codec does not wrap it
	unknown := Answer{Err: errors.Join(ErrUnknown, why)}
	for _, r := range unproved {
		if refused := r.Err != nil; odd || r.round == nil || r.call != nil || !refused { // WAIT's own refusal stands
			r.Answer = unknown
		}
		p.settle(r)
	}
	for _, s := range written {
		p.settle(reply{s, unknown})
	}
	p.line.ended(p, queue)
	_ = p.close(unwatch)
}

// close closes the network connection. It does not wait for a read in progress.
func (p *pipe) close(unwatch func() error) error {
	if unwatch != nil {
		go func() { _ = unwatch() }() // nobody waits: it is the user's
	}
	return p.conn.Close()
}

// drop ends a pipe that serves no line.
func (p *pipe) drop() {
	p.mu.Lock()
	unwatch := p.unwatch
	p.unwatch = nil
	p.mu.Unlock()
	_ = p.close(unwatch)
}

// errRetired is why a pipe has ended that is not needed.
var errRetired = errors.New("lockcore: the connection was replaced")

// retire makes the pipe end when all callers have their answers. It returns the calls that are not written.
func (p *pipe) retire() (queue []*call) {
	p.mu.Lock()
	p.leaves = true
	queue, p.queue = p.queue, nil
	p.mu.Unlock()
	p.leaveIfIdle()
	return queue
}

// leaveIfIdle ends a pipe that leaves, if no caller waits.
func (p *pipe) leaveIfIdle() {
	p.mu.Lock()
	over := p.leaves && p.live == 0
	p.mu.Unlock()
	if over {
		p.end(errRetired)
	}
}

// left is called when the caller of a written call has left.
func (p *pipe) left() {
	p.mu.Lock()
	p.live--
	p.mu.Unlock()
	p.leaveIfIdle()
}

// usable reports whether new calls may use the pipe. If not, and the server is silent on it, it may be usable again.
func (p *pipe) usable(now time.Duration) (usable, silent bool) {
	if p.outdated.Load() || !p.until.IsZero() && !time.Now().Before(p.until) {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	works := p.why == nil && !p.leaves && (p.idle <= 0 || len(p.written) > 0 || now-p.heard < p.idle)
	return works && !p.silent, works && p.silent
}

// isQuiet reports whether the server was found to be silent, and has not answered since.
func (p *pipe) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

// isSilent reports whether nothing was answered for so long that another pipe is needed. If not, it returns after which
// time to ask again. Behind a slow network, that is later.
func (p *pipe) isSilent(patience, now time.Duration) (silent bool, again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	patience = max(patience, p.takes+p.takes/2)
	if p.why != nil || len(p.written) == 0 {
		return false, patience
	}
	if left := max(p.written[0].sent, p.heard) + patience - now; left > 0 {
		return false, left
	}
	p.silent = true
	return true, 0
}
