package conn

import (
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Pipe is a connection that is set up. One goroutine writes what is queued, in the order of the calls. Another one
// reads, from the first reply to the end, and answers the calls in the same order. The answer to a call that was left is
// thrown away. One reading of the clock stamps the calls of a write.
//
// A timer ends silence. It starts with the oldest write without a reply, and again with each byte that arrives. The
// owner then uses another Pipe for new calls. This one ends when all its replies are there, or when the time of its last
// caller is over.
type Pipe struct {
	conn    net.Conn
	reader  *reader
	opt     *Options
	Addr    string        // address of the server
	expires time.Duration // end of ConnMaxLifetime, by Options.Now; 0 if there is none
	made    time.Duration // time of use, by Options.Now
	owner   owner         // nil during the setup

	outdated atomic.Bool   // the credentials have changed
	answered atomic.Bool   // the server has answered a call
	lastRead atomic.Int64  // time of the last bytes, by Options.Now
	wake     chan struct{} // wakes the writer

	mu       sync.Mutex
	unwatch  func() error // ends the watch of the credentials; nil if there is none
	queue    queue        // calls to write
	written  []slot       // expected replies, in their order
	sleeping bool         // the writer waits for wake
	draining bool         // no new calls
	err      error        // reason of the end; nil before it
	acks     acks
	silence

	// Only the writer uses these, unless it is sleeping.
	out  []byte
	next uint64 // id of the next command

	// Only the reader uses these.
	view    []slot  // copy of written, from the first one that had not arrived then
	viewed  int     // slots of view that have arrived
	arrived []reply // not delivered yet
	final   []reply // for calls, during a delivery
}

// errRetired is the reason of the end of a Pipe that was replaced.
var errRetired = errors.New("lockcore: the connection was replaced")

// An owner is told of a Pipe's silence, and of its end with the calls that it has not written.
type owner interface {
	silent(p *Pipe)
	ended(p *Pipe, queue []*call)
}

// A slot is an expected reply.
type slot struct {
	call  *call // nil for a command of our own
	kind  slotKind
	named bool
	id    uint64
	sent  time.Duration
}

type slotKind uint8

const (
	slotCall   slotKind = iota
	slotAsking          // the reply to ASKING is thrown away
	slotMark            // see acks
	slotWait
	slotProof
)

// A reply is an answer in its slot.
type reply struct {
	slot
	Answer
}

const (
	readSize = 4 << 10

	// maxWritten limits the expected replies of a Pipe. Those to calls that were left count.
	maxWritten = 1024
)

func newPipe(conn net.Conn, opt *Options) *Pipe {
	p := &Pipe{conn: conn, opt: opt, Addr: remoteAddr(conn), next: rand.Uint64() >> 16, wake: make(chan struct{}, 1)}
	p.reader = newReader(source{p})
	return p
}

// Ask sends commands during the setup, in one round trip. With an error, it returns the answers before that.
func (p *Pipe) Ask(commands ...Command) ([]Answer, error) {
	var out []byte
	first := p.next
	for _, c := range commands {
		out = p.append(out, c)
	}
	began := time.Now()
	_, _ = p.conn.Write(out) // the read fails, too, and may know the reason
	answers := make([]Answer, len(commands))
	for i, c := range commands {
		a, err := readAnswer(p.reader, c.Named, first+uint64(i))
		if err != nil {
			return answers[:i], err
		}
		answers[i] = a
	}
	p.usual = time.Since(began)
	return answers, nil
}

// Send writes commands whose replies Read returns. The Pipe must serve no Line.
func (p *Pipe) Send(commands ...[]any) error {
	var out []byte
	for _, args := range commands {
		out = appendCommand(out, args)
	}
	_, err := p.conn.Write(out)
	return err
}

// Read returns the next reply or message. The Pipe must serve no Line. A *Refusal leaves the connection usable.
func (p *Pipe) Read() (any, error) {
	if _, err := p.reader.Peek(1); err != nil {
		return nil, err
	}
	p.reader.left = maxReply
	return readValue(p.reader, 0)
}

// append appends a command with the id next.
func (p *Pipe) append(b []byte, c Command) []byte {
	id := p.next
	p.next++
	if c.Named {
		return appendNamed(b, c.Args, id)
	}
	return appendCommand(b, c.Args)
}

// use begins to serve an owner.
func (p *Pipe) use(by owner) {
	p.owner, p.made = by, p.opt.Now()
	if life := p.opt.Redis.ConnMaxLifetime; life > 0 {
		if jitter := int64(min(p.opt.Redis.ConnMaxLifetimeJitter, life)); jitter > 0 {
			life += time.Duration(rand.Int64N(2*jitter) - jitter)
		}
		p.expires = p.made + life
	}
	p.lastRead.Store(int64(p.made))
	p.timer = time.AfterFunc(time.Hour, p.checkSilence)
	go p.read()
	go p.write()
}

// submit queues calls. It returns false if the Pipe takes no new calls.
func (p *Pipe) submit(calls ...*call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.draining || p.isOld() {
		return false
	}
	p.queue.add(calls...)
	p.wakeWriter()
	return true
}

// isOld reports whether the user's options want another connection. The caller holds mu.
func (p *Pipe) isOld() bool {
	idle := p.opt.Redis.ConnMaxIdleTime
	return p.outdated.Load() || p.expires > 0 && p.opt.Now() >= p.expires ||
		idle > 0 && len(p.written) == 0 && p.opt.Now()-time.Duration(p.lastRead.Load()) >= idle
}

// wakeWriter wakes the writer, if it has something to do. The caller holds mu.
func (p *Pipe) wakeWriter() {
	if p.sleeping && (p.err != nil || p.mayWrite()) {
		p.sleeping = false
		p.wake <- struct{}{}
	}
}

// mayWrite reports whether there is something to write now. The caller holds mu.
func (p *Pipe) mayWrite() bool {
	return len(p.queue.calls) > 0 && len(p.written) < maxWritten && p.acks.mayWrite() || p.acks.wantsWait()
}

// write writes what is queued, until the Pipe ends.
func (p *Pipe) write() {
	for {
		runtime.Gosched() // callers that were just answered queue their next calls
		p.mu.Lock()
		switch {
		case p.err != nil:
			p.mu.Unlock()
			return
		case !p.mayWrite():
			p.sleeping = true
			p.mu.Unlock()
			<-p.wake
			continue
		}
		p.encode()
		p.mu.Unlock()
		if len(p.out) == 0 {
			continue // all callers have left
		}
		if _, err := p.conn.Write(p.out); err != nil {
			// The server may have answered before it closed the connection.
			time.AfterFunc(returnWithin, func() { p.end(err) })
			return
		}
	}
}

// encode makes the bytes of the next write, and a slot for each reply to it. The caller holds mu.
func (p *Pipe) encode() {
	if cap(p.out) > keptBuffer {
		p.out = nil
	}
	p.out = p.out[:0]
	now, ticks := p.opt.Now(), p.opt.Ticks()
	var batch []*call // those that need replicas
	patience := mostPatience
	n := 0
	for ; n < len(p.queue.calls) && len(p.written) < maxWritten && len(p.out) < keptBuffer; n++ {
		c := p.queue.calls[n]
		if c.command.Grants && p.opt.Refusal != nil {
			if err := p.opt.Refusal(); err != nil {
				c.answered(Answer{Err: err})
				continue
			}
		}
		if !c.write(ticks) {
			continue
		}
		if c.command.Asking {
			p.add(slot{kind: slotAsking, sent: now}, Plain("asking"))
		}
		p.add(slot{call: c, named: c.command.Named, sent: now}, c.command)
		patience = min(patience, patienceOf(c))
		if c.command.Within > 0 && p.opt.Replicas > 0 {
			batch = append(batch, c)
		}
	}
	p.queue.calls = slices.Delete(p.queue.calls, 0, n)
	if len(batch) > 0 || p.acks.wantsWait() {
		for _, own := range p.acks.commands(batch, p.opt.Replicas, now) {
			p.add(slot{kind: own.kind, named: own.Named, sent: now}, own.Command)
		}
	}
	p.watch(patience)
}

// add appends a command and its slot. The caller holds mu.
func (p *Pipe) add(s slot, c Command) {
	s.id = p.next
	p.out = p.append(p.out, c)
	p.written = append(p.written, s)
	if p.sample == 0 && len(p.acks.times) == 0 {
		p.sample = s.id
	}
}

// isEmpty reports whether no reply is expected. The caller holds mu.
func (p *Pipe) isEmpty() bool { return len(p.written) == 0 && len(p.acks.pending) == 0 }

// drain makes the Pipe take no new calls, and end when it has no callers. It returns the calls that are not written.
func (p *Pipe) drain() []*call {
	p.mu.Lock()
	calls, empty := p.queue.take(), p.isEmpty()
	if p.err == nil && !p.draining {
		p.draining = true
		p.timer.Reset(min(p.lastCaller()-p.opt.Now(), mostPatience))
	}
	p.mu.Unlock()
	if empty {
		p.end(errRetired)
	}
	return calls
}

// end ends the Pipe. The outcome of what is written is unknown. The calls that are not written go to the owner.
func (p *Pipe) end(why error) {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.err = why
	p.timer.Stop()
	written, pending, queue := p.written, p.acks.pending, p.queue.take()
	p.written, p.acks.pending = nil, nil
	p.wakeWriter()
	p.mu.Unlock()
	for _, r := range pending {
		written = append(written, r.slot)
	}
	for _, s := range written {
		if s.call != nil {
			p.give(reply{s, Answer{Err: errors.Join(ErrUnknown, why)}})
		}
	}
	p.owner.ended(p, queue)
	p.Drop()
}

// Drop closes the network connection, and does not wait for that: its Close may be the user's, and so is unwatch.
func (p *Pipe) Drop() {
	p.mu.Lock()
	unwatch := p.unwatch
	p.unwatch = nil
	p.mu.Unlock()
	go func() {
		_ = p.conn.Close()
		if unwatch != nil {
			defer func() { _ = recover() }()
			_ = unwatch()
		}
	}()
}
