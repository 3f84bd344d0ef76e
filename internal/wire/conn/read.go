package conn

import (
	"slices"
	"time"
)

// A source is the connection of a Pipe. Before the reader waits for the network, it delivers what has arrived.
type source struct{ p *Pipe }

func (s source) Read(b []byte) (int, error) {
	s.p.deliver()
	n, err := s.p.conn.Read(b)
	if n > 0 {
		s.p.lastRead.Store(int64(s.p.opt.Now()))
	}
	return n, err
}

// read reads replies until the Pipe ends. Drop makes a read fail, and does not wait for it.
func (p *Pipe) read() {
	for {
		if err := p.readReply(); err != nil {
			p.deliver()
			p.end(err)
			return
		}
	}
}

// readReply reads the reply of the next slot.
func (p *Pipe) readReply() error {
	if p.viewed == len(p.view) {
		if _, err := p.reader.Peek(1); err != nil { // until then, there may be no slot
			return err
		}
		p.mu.Lock()
		p.view, p.viewed = append(p.view[:0], p.written[min(len(p.arrived), len(p.written)):]...), 0
		p.mu.Unlock()
		if p.viewed == len(p.view) {
			return errOtherAnswer
		}
	}
	s := p.view[p.viewed]
	a, err := readAnswer(p.reader, s.named, s.id)
	if err != nil {
		return err
	}
	p.viewed++
	p.arrived = append(p.arrived, reply{s, a})
	return nil
}

// deliver gives the replies that have arrived to their calls.
func (p *Pipe) deliver() {
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
		p.measure(r.slot, now)
		switch {
		case r.call != nil && r.call.command.Within > 0 && r.Err == nil && p.opt.Replicas > 0:
			p.acks.pending = append(p.acks.pending, r)
		case r.call != nil:
			p.final = append(p.final, r)
		default:
			p.final = append(p.final, p.acks.take(r, p.opt.Replicas, now, p.draining)...)
		}
	}
	over := p.draining && p.isEmpty()
	p.answered.Store(true)
	p.wakeWriter()
	p.mu.Unlock()
	for _, r := range p.final {
		p.give(r)
	}
	clear(p.arrived)
	clear(p.final)
	p.arrived, p.final = p.arrived[:0], p.final[:0]
	if over {
		p.end(errRetired)
	}
}

// give gives an answer to its call, and an error to those who follow the server.
func (p *Pipe) give(r reply) {
	if r.Err != nil && p.opt.Refused != nil {
		p.opt.Refused(r.sent, r.Err)
	}
	r.call.answered(r.Answer)
}
