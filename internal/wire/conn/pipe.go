package conn

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Pipe is a connection that is set up. Calls are written on it in their order, while others wait for their
// answers, and are answered in the same order. The package documentation has their states. When a write begins, one
// reading of the clock stamps its calls. The call of a caller that has left is skipped, or its answer is thrown away.
//
// Who finds nobody writing, writes, and a goroutine writes what is queued meanwhile. A caller that is alone reads its
// answer itself, for a moment. Otherwise, another goroutine reads.
//
// The reply to a command that is Named repeats its id. Other replies, and refusals, name nothing. They count when the
// reply to a later named command is the right one. If none was sent after them, one is that does nothing, see proof.
//
// With Options.Replicas, only one write is under way: WAIT may end it, and would delay what is behind it.
type Pipe struct {
	conn   net.Conn
	reader *reader
	Addr   string    // where it leads to
	until  time.Time // the end of the user's ConnMaxLifetime; zero: none
	idle   time.Duration
	socket syscall.RawConn // nil: a write may block for long

	line *Line         // nil during the setup
	made time.Duration // when it began to serve, by Line.Now

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
	heard    time.Duration // when the last answer arrived, by Line.Now
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

// A call is a command on its way.
type call struct {
	command Command
	timeout time.Duration // of the caller
	until   time.Duration // its end, by Line.Now
	state   atomic.Int32
	pipe    *Pipe         // that it was written on
	sent    time.Duration // just before the write, by Line.Now
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

func newPipe(conn net.Conn, opt *Options) *Pipe {
	p := &Pipe{
		conn: conn, reader: newReader(conn), Addr: remoteAddr(conn), idle: opt.Redis.ConnMaxIdleTime,
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
	if life := opt.Redis.ConnMaxLifetime; life > 0 {
		if jitter := int64(min(opt.Redis.ConnMaxLifetimeJitter, life)); jitter > 0 {
			life += time.Duration(rand.Int64N(2*jitter) - jitter)
		}
		p.until = time.Now().Add(life)
	}
	return p
}

// Ask sends commands on a connection that serves no Line, in one round trip. The replies need no proof: nothing was sent
// before.
func (p *Pipe) Ask(commands ...Command) ([]Answer, error) {
	var out []byte
	first := p.next
	for _, c := range commands {
		out = p.append(out, c)
	}
	began := time.Now()
	_, _ = p.conn.Write(out) // if it fails, the server may have said why: the read says it, or fails, too
	answers := make([]Answer, len(commands))
	for i, c := range commands {
		a, err := readAnswer(p.reader, c.Named, first+uint64(i))
		if err != nil {
			return nil, err
		}
		answers[i] = a
	}
	p.takes = time.Since(began)
	return answers, nil
}

// Send writes commands whose answers Read returns, on a connection that serves no Line.
func (p *Pipe) Send(commands ...[]any) error {
	var out []byte
	for _, args := range commands {
		out = appendCommand(out, args)
	}
	_, err := p.conn.Write(out)
	return err
}

// Read reads what the server has sent. A *Refusal leaves the connection usable.
func (p *Pipe) Read() (any, error) {
	if _, err := p.reader.Peek(1); err != nil {
		return nil, err
	}
	p.reader.left = maxReply
	return readValue(p.reader, 0)
}

// append appends a command, whose id is next.
func (p *Pipe) append(b []byte, c Command) []byte {
	id := p.next
	p.next++
	if c.Named {
		return appendNamed(b, c.Args, id)
	}
	return appendCommand(b, c.Args)
}

// use begins to serve a line.
func (p *Pipe) use(l *Line) {
	p.line, p.made = l, l.Now()
	p.heard = p.made
	if p.socket == nil { // nobody would notice its end
		p.reading = true
		go p.read()
	}
}

// submit queues calls, before all others if first is true. It returns false if the pipe has ended.
func (p *Pipe) submit(first bool, calls ...*call) bool {
	p.mu.Lock()
	if p.why != nil || p.leaves {
		p.mu.Unlock()
		return false
	}
	if p.socket != nil && len(p.written) == 0 && p.line.Now()-p.heard > checkIdle && isClosed(p.socket) {
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
func (p *Pipe) mayWrite() bool {
	if p.writing || p.why != nil {
		return false
	}
	calls := len(p.queue) > 0 && len(p.written) < maxWritten && (p.line.Replicas == 0 || len(p.written) == 0)
	return calls || len(p.unproved) > 0 && p.named == 0
}

// writeQueue writes what is queued. The caller has set writing.
func (p *Pipe) writeQueue() {
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
func (p *Pipe) flush(out []byte) (more bool) {
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
func (p *Pipe) encode() (out []byte, reads bool) {
	p.out = p.out[:0]
	now, ticks := p.line.Now(), p.line.Ticks()
	var r *round // nil: no call needs replicas
	n := 0
	for ; n < len(p.queue) && len(p.written) < maxWritten && len(p.out) < keptBuffer; n++ {
		c := p.queue[n]
		if c.command.Grants && p.line.Refusal != nil {
			if err := p.line.Refusal(); err != nil {
				c.answered(Answer{Err: err})
				continue
			}
		}
		c.pipe, c.sent = p, now
		if !c.state.CompareAndSwap(callQueued, callWritten) {
			continue
		}
		c.command.stampAt(ticks)
		if c.command.Asking {
			p.add(slot{sent: now}, plain("asking"))
		}
		p.live++
		s := slot{call: c, named: c.command.Named, sha: c.command.Script, sent: now}
		if c.command.Within > 0 && p.line.Replicas > 0 {
			r = r.join(c, p.line.Replicas, now)
			s.round = r
		}
		p.add(s, c.command)
	}
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	if r != nil {
		for _, c := range r.finish() {
			p.add(slot{round: r, sent: now}, c)
		}
	}
	if n := len(p.written); n > 0 && !p.written[n-1].named && len(p.out) > 0 || len(p.unproved) > 0 && p.named == 0 {
		p.add(slot{proof: true, named: true, sent: now}, proof)
	}
	reads = !p.reading && len(p.written) > 0
	p.reading = p.reading || reads
	return p.out, reads
}

// add appends a command and its slot. The caller holds mu.
func (p *Pipe) add(s slot, c Command) {
	s.id = p.next
	p.out = p.append(p.out, c)
	if s.named {
		p.named++
	}
	p.written = append(p.written, s)
}

// end ends the pipe, and gives the calls that are not written to the line.
func (p *Pipe) end(why error) {
	p.mu.Lock()
	if p.why != nil {
		p.mu.Unlock()
		return
	}
	p.why = why
	written, unproved, queue := p.written, p.unproved, p.queue
	p.written, p.unproved, p.queue = nil, nil, nil
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
	p.Drop()
}

// Drop closes the network connection. It does not wait for a read in progress.
func (p *Pipe) Drop() {
	p.mu.Lock()
	unwatch := p.unwatch
	p.unwatch = nil
	p.mu.Unlock()
	if unwatch != nil {
		go func() { _ = unwatch() }() // nobody waits: it is the user's
	}
	_ = p.conn.Close()
}

// errRetired is why a pipe has ended that is not needed.
var errRetired = errors.New("lockcore: the connection was replaced")

// retire makes the pipe end when all callers have their answers. It returns the calls that are not written.
func (p *Pipe) retire() (queue []*call) {
	p.mu.Lock()
	p.leaves = true
	queue, p.queue = p.queue, nil
	p.mu.Unlock()
	p.leaveIfIdle()
	return queue
}

// leaveIfIdle ends a pipe that leaves, if no caller waits.
func (p *Pipe) leaveIfIdle() {
	p.mu.Lock()
	over := p.leaves && p.live == 0
	p.mu.Unlock()
	if over {
		p.end(errRetired)
	}
}

// left is called when the caller of a written call has left.
func (p *Pipe) left() {
	p.mu.Lock()
	p.live--
	p.mu.Unlock()
	p.leaveIfIdle()
}

// usable reports whether new calls may use the pipe. If not, and the server is silent on it, it may be usable again.
func (p *Pipe) usable(now time.Duration) (usable, silent bool) {
	if p.outdated.Load() || !p.until.IsZero() && !time.Now().Before(p.until) {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	works := p.why == nil && !p.leaves && (p.idle <= 0 || len(p.written) > 0 || now-p.heard < p.idle)
	return works && !p.silent, works && p.silent
}

// isQuiet reports whether the server was found to be silent, and has not answered since.
func (p *Pipe) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

// isSilent reports whether nothing was answered for so long that another pipe is needed. If not, it returns after which
// time to ask again. Behind a slow network, that is later.
func (p *Pipe) isSilent(patience, now time.Duration) (silent bool, again time.Duration) {
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
