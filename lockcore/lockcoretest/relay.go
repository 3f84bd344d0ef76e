package lockcoretest

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// relay forwards one connection. up reads requests and down reads replies, each on its own
// goroutine. run waits for both.
type relay struct {
	faults         *Faults
	client, server net.Conn
	gone           chan struct{} // closed by abort

	mu         sync.Mutex
	aborted    bool
	subscribed bool                           // a SUBSCRIBE has been sent
	channels   map[string]map[string]struct{} // "", "P" or "S" -> channels, patterns, shard channels
	pending    []*exchange                    // requests without a complete reply, in order
	deaf       bool                           // replies to the client are dropped
}

func newRelay(f *Faults, client, server net.Conn) *relay {
	return &relay{
		faults: f, client: client, server: server,
		gone: make(chan struct{}), channels: map[string]map[string]struct{}{},
	}
}

func (r *relay) run() {
	var wg sync.WaitGroup
	wg.Go(r.up)
	r.down()
	wg.Wait()
}

// abort resets the client's connection and closes the server's. The server still executes
// the requests that it has received. abort reports whether this was the first call.
func (r *relay) abort() bool {
	r.mu.Lock()
	first := !r.aborted
	r.aborted = true
	r.mu.Unlock()
	if first {
		close(r.gone)
		reset(r.client)
		_ = r.server.Close()
	}
	return first
}

func (r *relay) isSubscribed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.subscribed
}

// pass waits while the network is cut. It returns false if the connection was aborted.
func (r *relay) pass() bool {
	for {
		r.faults.mu.Lock()
		cut := r.faults.cut
		r.faults.mu.Unlock()
		if cut == nil {
			return true
		}
		cut.fire()
		select {
		case <-cut.lifted:
		case <-r.gone:
			return false
		}
	}
}

// hold waits for the delay of a rule. It returns false if the connection was aborted.
func (r *relay) hold(rule *Rule) bool {
	rule.fire()
	var over <-chan time.Time
	if rule.fault.Delay > 0 {
		t := time.NewTimer(rule.fault.Delay)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-rule.lifted:
	case <-r.gone:
		return false
	}
	return true
}

// up forwards requests. After the client has closed, data in transit still arrives, as
// with TCP, and then the end.
func (r *relay) up() {
	in := newWire(r.client)
	mute := false
	for {
		raw, cmd, err := in.request()
		if err != nil {
			break
		}
		if mute {
			continue
		}
		var alive bool
		if mute, alive = r.request(raw, cmd); !alive {
			break
		}
	}
	if r.pass() {
		halfClose(r.server)
	}
}

// request forwards one request and applies its faults.
func (r *relay) request(raw []byte, cmd []string) (mute, alive bool) {
	times := 1
	var onReply []*Rule // rules for the reply
	if len(cmd) > 0 {
		for _, rule := range r.faults.current() {
			if !rule.fault.Kind.ofRequest() || !rule.applies(cmd) {
				continue
			}
			switch rule.fault.Kind {
			case DropRequest:
				rule.fire()
				return true, true
			case ResetBefore:
				rule.fire()
				r.abort()
				return true, false
			case DelayRequest:
				if !r.hold(rule) {
					return true, false
				}
			case DuplicateRequest:
				rule.fire()
				times = 2
			case ResetAfter, SwallowReply, DelayReply, TrickleReply, RepeatReply:
				onReply = append(onReply, rule)
			case DropMessage, DelayMessage, RefuseDial, partition: // not faults of requests
			}
		}
		r.faults.learn(cmd)
	}
	if !r.pass() {
		return true, false
	}
	for n := times; n > 0; n-- {
		if len(cmd) > 0 {
			r.expect(cmd, onReply, n > 1)
		}
		if _, err := r.server.Write(raw); err != nil {
			return true, false
		}
	}
	return false, true
}

// down forwards replies and messages. It continues to read after the client has closed, so
// that the server executes the requests in transit.
func (r *relay) down() {
	in := newWire(r.server)
	for {
		p, err := in.reply()
		if err != nil || !r.pass() || !r.reply(p) {
			break
		}
	}
	r.pass() // a partition also holds back the end of a connection
	_ = r.client.Close()
	_ = r.server.Close()
}

// reply forwards one reply or message and applies its faults.
func (r *relay) reply(p reply) bool {
	e := r.answers(p)
	if e == nil {
		return r.message(p)
	}
	trickle, raw := false, p.raw
	for _, rule := range e.rules {
		if bytes.HasPrefix(p.raw, []byte("-NOSCRIPT")) {
			rule.unclaim() // the script was not executed: apply the rule to its next run
			continue
		}
		switch rule.fault.Kind {
		case ResetAfter:
			rule.fire()
			r.abort()
			return false
		case SwallowReply:
			rule.fire()
			r.deafen()
		case DelayReply:
			if !r.hold(rule) {
				return false
			}
		case TrickleReply:
			rule.fire()
			trickle = true
		case RepeatReply:
			rule.fire()
			raw = bytes.Repeat(p.raw, 2)
		case DropRequest, DelayRequest, DuplicateRequest, ResetBefore,
			DropMessage, DelayMessage, RefuseDial, partition: // not faults of replies
		}
	}
	e.rules = nil // once per request, even if it has several replies
	if e.discard {
		return true
	}
	if !trickle {
		r.deliver(raw)
		return true
	}
	for i := range raw {
		r.deliver(raw[i : i+1])
	}
	return true
}

func (r *relay) message(p reply) bool {
	r.mu.Lock()
	published := r.isMessage(p)
	r.mu.Unlock()
	if published {
		for _, rule := range r.faults.current() {
			if !rule.fault.Kind.ofMessage() || !rule.applies(p.items) {
				continue
			}
			if rule.fault.Kind == DropMessage {
				rule.fire()
				return true
			}
			if !r.hold(rule) {
				return false
			}
		}
	}
	r.deliver(p.raw)
	return true
}

// deliver writes to the client unless its replies are dropped.
func (r *relay) deliver(b []byte) {
	r.mu.Lock()
	deaf := r.deaf
	r.mu.Unlock()
	if deaf {
		return
	}
	if _, err := r.client.Write(b); err != nil {
		r.deafen()
	}
}

func (r *relay) deafen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = true
}
