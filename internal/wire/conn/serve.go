package conn

import (
	"runtime"
	"slices"
	"time"
)

// serve starts the writer and the reader of a pipe.
func (p *pipe) serve() {
	p.reader.Reset(source{p})
	go p.readAll()
	go p.writeAll()
}

func (p *pipe) writeAll() {
	for {
		runtime.Gosched() // so that callers that were just answered can add their next calls to this write
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
			continue // all calls were abandoned
		}
		if _, err := p.conn.Write(p.out); err != nil {
			// The server may have answered before it closed the connection.
			time.AfterFunc(grace, func() { p.end(err) })
			return
		}
	}
}

// encode makes the bytes of the next write and a slot for each reply. One reading of the clock stamps all calls. The
// caller holds mu.
func (p *pipe) encode() {
	if cap(p.out) > keptBuffer {
		p.out = nil
	}
	p.out = p.out[:0]
	now, stamp := p.opt.Now(), p.opt.Clock()
	var replicated []*call
	limit := maxSilence
	n := 0
	for ; n < len(p.queue.calls) && len(p.written) < maxWritten && len(p.out) < keptBuffer; n++ {
		c := p.queue.calls[n]
		if c.command.Grants && p.opt.Refusal != nil {
			if err := p.opt.Refusal(); err != nil {
				c.complete(Answer{Err: err})
				continue
			}
		}
		if !c.markWritten(stamp) {
			continue
		}
		if c.command.Asking {
			p.add(slot{kind: slotAsking, sent: now}, Plain("asking"))
		}
		p.add(slot{call: c, named: c.command.Named, sent: now}, c.command)
		limit = min(limit, silenceLimit(c.timeout))
		if c.command.ReplicaTimeout > 0 && p.opt.Replicas > 0 {
			replicated = append(replicated, c)
		}
	}
	p.queue.calls = slices.Delete(p.queue.calls, 0, n)
	if len(replicated) > 0 || p.acks.needsWaitCommand() {
		for _, w := range p.acks.commands(replicated, p.opt.Replicas, now) {
			p.add(slot{kind: w.kind, named: w.Named, sent: now}, w.Command)
		}
	}
	p.limitSilence(limit)
}

// add appends a command and its slot. The caller holds mu.
func (p *pipe) add(s slot, c Command) {
	s.id = p.next
	p.out = p.append(p.out, c)
	p.written = append(p.written, s)
	if p.silence.sample == 0 && len(p.acks.timeouts) == 0 {
		p.silence.sample = s.id
	}
}

// A source is what the reader of a pipe reads from. Before it waits for the network, it delivers the replies that were
// read.
type source struct{ p *pipe }

func (s source) Read(b []byte) (int, error) {
	s.p.deliver()
	n, err := s.p.conn.Read(b)
	if n > 0 {
		s.p.lastRead.Store(int64(s.p.opt.Now()))
	}
	return n, err
}

// readAll reads replies until the pipe ends: Drop makes a read fail.
func (p *pipe) readAll() {
	for {
		if err := p.readReply(); err != nil {
			p.deliver()
			p.end(err)
			return
		}
	}
}

func (p *pipe) readReply() error {
	if p.read == len(p.expected) {
		if _, err := p.reader.Peek(1); err != nil { // a reply follows its command, whose slot is then in written
			return err
		}
		p.mu.Lock()
		p.expected, p.read = append(p.expected[:0], p.written[min(len(p.arrived), len(p.written)):]...), 0
		p.mu.Unlock()
		if p.read == len(p.expected) {
			return errWrongReply
		}
	}
	s := p.expected[p.read]
	a, err := readAnswer(p.reader, s.named, s.id)
	if err != nil {
		return err
	}
	p.read++
	p.arrived = append(p.arrived, reply{s, a})
	return nil
}

// deliver completes the calls whose replies were read.
func (p *pipe) deliver() {
	if len(p.arrived) == 0 {
		return
	}
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.written = slices.Delete(p.written, 0, len(p.arrived))
	now := time.Duration(p.lastRead.Load())
	for _, r := range p.arrived {
		p.silence.measure(r.id, now-r.sent)
		switch {
		case r.call != nil && r.call.command.ReplicaTimeout > 0 && r.Err == nil && p.opt.Replicas > 0:
			p.acks.pending = append(p.acks.pending, r)
		case r.call != nil:
			p.decided = append(p.decided, r)
		default:
			p.decided = append(p.decided, p.acks.receive(r, p.opt.Replicas, now, p.draining)...)
		}
	}
	drained := p.draining && p.isEmpty()
	p.answered.Store(true)
	p.wakeWriter()
	p.mu.Unlock()
	for _, r := range p.decided {
		p.complete(r)
	}
	clear(p.arrived)
	clear(p.decided)
	p.arrived, p.decided = p.arrived[:0], p.decided[:0]
	if drained {
		p.end(errDrained)
	}
}
