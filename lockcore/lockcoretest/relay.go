package lockcoretest

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// relay forwards one connection. up reads requests and down reads replies, each on its own
// goroutine. run waits for both.
type relay struct {
	faults *Faults
	client *memConn
	server net.Conn
	gone   chan struct{} // closed by abort

	mu         sync.Mutex
	aborted    bool
	subscribed bool        // a SUBSCRIBE has been sent
	pending    []*exchange // requests without a complete reply, in order
	deaf       bool        // replies to the client are dropped
}

// exchange is a request that was sent, with the rules for its reply.
type exchange struct {
	left      int    // replies still expected
	subscribe string // kind of its confirmations, such as "subscribe"; empty for other requests
	discard   bool   // the reply is dropped: the request is the first of two duplicates
	rules     []*Rule
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
	isFirst := !r.aborted
	r.aborted = true
	r.mu.Unlock()
	if isFirst {
		close(r.gone)
		r.client.reset()
		_ = r.server.Close()
	}
	return isFirst
}

func (r *relay) isSubscribed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.subscribed
}

// pass waits while the network is cut. It returns false if the connection was aborted.
func (r *relay) pass() bool {
	for {
		cut := r.faults.cutBy()
		if cut == nil {
			return true
		}
		if !r.hold(cut) {
			return false
		}
	}
}

// hold waits for the delay of a rule, or until the rule is lifted. It returns false if the connection was aborted.
func (r *relay) hold(rule *Rule) bool {
	rule.fire()
	var over <-chan time.Time
	if rule.fault.Delay > 0 {
		over = time.After(rule.fault.Delay)
	}
	select {
	case <-over:
	case <-rule.lifted:
	case <-r.gone:
		return false
	}
	return true
}

// up forwards requests. After the client has closed, the server still gets the data in transit and then the end, as
// with TCP.
func (r *relay) up() {
	in := newWire(r.client)
	for mute := false; ; {
		v, raw, err := in.next()
		if err != nil || v.kind != '*' {
			break
		}
		alive := true
		if !mute {
			mute, alive = r.request(raw, v.items)
		}
		if !alive {
			break
		}
	}
	if !r.pass() {
		return
	}
	if half, ok := r.server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	} else {
		_ = r.server.Close()
	}
}

// request forwards one request and applies its faults. If mute is true, the server gets nothing more.
func (r *relay) request(raw []byte, cmd []string) (mute, alive bool) {
	times := 1
	var onReply []*Rule
	if len(cmd) > 0 {
		cmd[0] = strings.ToUpper(cmd[0])
		for _, rule := range r.faults.current() {
			if !slices.Contains(ofRequests, rule.fault.Kind) || !rule.applies(cmd) {
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
			default:
				onReply = append(onReply, rule)
			}
		}
	}
	if !r.pass() {
		return true, false
	}
	for ; times > 0; times-- {
		if len(cmd) > 0 { // an empty request has no reply
			r.expect(cmd, onReply, times > 1)
		}
		if _, err := r.server.Write(raw); err != nil {
			return true, false
		}
	}
	return false, true
}

// expect records which replies the request will have.
func (r *relay) expect(cmd []string, rules []*Rule, discard bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &exchange{left: 1, discard: discard}
	if !discard {
		e.rules = rules
	}
	if strings.HasSuffix(cmd[0], "SUBSCRIBE") {
		e.left, e.subscribe = max(1, len(cmd)-1), strings.ToLower(cmd[0])
		r.subscribed = true
	}
	r.pending = append(r.pending, e)
}

// answers returns the request that v answers, nil for a message or another push. RESP3 sends confirmations of
// subscriptions as pushes. After an UNSUBSCRIBE without names, only the first confirmation counts as an answer.
func (r *relay) answers(v value) *exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	push := v.kind == '>' || v.kind == '*' && r.subscribed && (isMessage(v) || strings.HasSuffix(first(v), "subscribe"))
	if len(r.pending) == 0 || push && r.pending[0].subscribe != first(v) {
		return nil
	}
	e := r.pending[0]
	if e.left--; e.left <= 0 || v.kind == '-' {
		r.pending = r.pending[1:]
	}
	return e
}

func first(v value) string {
	if len(v.items) == 0 {
		return ""
	}
	return v.items[0]
}

func isMessage(v value) bool {
	kind := first(v)
	return len(v.items) > 2 && (kind == "message" || kind == "pmessage" || kind == "smessage")
}

// down forwards replies and messages. It continues to read after the client has closed, so
// that the server executes the requests in transit.
func (r *relay) down() {
	in := newWire(r.server)
	for {
		v, raw, err := in.next()
		if err != nil || !r.pass() || !r.reply(v, raw) {
			break
		}
	}
	r.pass() // a partition also holds back the end of a connection
	_ = r.client.Close()
	_ = r.server.Close()
}

// reply forwards one reply or message and applies its faults.
func (r *relay) reply(v value, raw []byte) bool {
	e := r.answers(v)
	if e == nil {
		return r.message(v, raw)
	}
	step, times := len(raw), 1
	for _, rule := range e.rules {
		if bytes.HasPrefix(raw, []byte("-NOSCRIPT")) {
			rule.unclaim() // the script was not executed: apply the rule to its next run
			continue
		}
		if rule.fault.Kind == DelayReply {
			if !r.hold(rule) {
				return false
			}
			continue
		}
		rule.fire()
		switch rule.fault.Kind {
		case ResetAfter:
			r.abort()
			return false
		case SwallowReply:
			r.deafen()
		case TrickleReply:
			step = 1
		case RepeatReply:
			times = 2
		}
	}
	e.rules = nil // once per request, even if it has several replies
	if e.discard {
		return true
	}
	for raw = bytes.Repeat(raw, times); len(raw) > 0; raw = raw[min(step, len(raw)):] {
		r.deliver(raw[:min(step, len(raw))])
	}
	return true
}

func (r *relay) message(v value, raw []byte) bool {
	if isMessage(v) {
		for _, rule := range r.faults.current() {
			if !slices.Contains(ofMessages, rule.fault.Kind) || !rule.applies(v.items) {
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
	r.deliver(raw)
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
