package conn

import (
	"errors"
	"os"
	"time"
)

// read reads until the callers are alone, or the pipe has ended. close makes a read fail, and does not wait for it.
func (p *Pipe) read() {
	for {
		if p.readOne() {
			return
		}
	}
}

// readAlone reads until a call is answered, for a moment, and lets a goroutine read the rest.
func (p *Pipe) readAlone(c *call) {
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
func (p *Pipe) readOne() (over bool) {
	if _, err := p.reader.Peek(1); err != nil { // until then, the first slot may not be there
		p.end(err)
		return true
	}
	over, err := p.readSlot()
	if err != nil {
		p.end(err)
		return true
	}
	return over
}

// readSlot reads the reply for the first slot. A reply for none was not asked for. over: nothing is left to be read.
func (p *Pipe) readSlot() (over bool, _ error) {
	p.mu.Lock()
	if len(p.written) == 0 {
		p.mu.Unlock()
		return false, errOtherAnswer
	}
	s := p.written[0]
	p.mu.Unlock()
	a, err := readAnswer(p.reader, s.named, s.id)
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
	p.heard, p.silent = p.line.Now(), false
	p.takes = max(p.takes-p.takes/8, p.heard-s.sent)
	if s.named {
		p.named--
	}
	var one [1]reply
	ready := one[:0]
	switch named := s.named && a.Err == nil; {
	case named || s.proof:
		ready, p.unproved = append(append(ready, p.unproved...), reply{s, a}), nil
	case s.sha && HasCode(a.Err, "NOSCRIPT"): // the request is sent again, and finds out
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
func (p *Pipe) settle(r reply) {
	switch {
	case r.round != nil:
		r.round.settle(r, p.give)
	case r.call != nil:
		p.give(r.call, r.Answer)
	}
}

// give gives an answer to its call, and to those who follow the server.
func (p *Pipe) give(c *call, a Answer) {
	if a.Err != nil && p.line.Refused != nil {
		p.line.Refused(c.sent, a.Err)
	}
	if c.answered(a) {
		p.mu.Lock()
		p.live--
		p.mu.Unlock()
	}
}
