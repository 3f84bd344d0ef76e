package lockcoretest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Kind is what a [Fault] does.
type Kind int

// The kinds of faults: of requests, of replies, of messages, of dials. A connection on which bytes were lost is never whole
// again: it stays open and silent in that direction, as a client sees it when
// the network has failed, until the client gives up and dials anew.
const (
	// DropRequest loses the request, and whatever follows it on its connection.
	// It is not executed.
	DropRequest Kind = iota + 1
	// DelayRequest holds the request back for Fault.Delay, or until the rule is
	// lifted, and with it whatever follows on its connection. It is delivered
	// even if the client has closed the connection by then: so an acquire
	// arrives after its own release.
	DelayRequest
	// DuplicateRequest sends the request twice and hands over the second reply,
	// as a client's own retry would.
	DuplicateRequest
	// ResetBefore resets the connection instead of sending the request.
	// It is not executed.
	ResetBefore
	// ResetAfter resets the connection in place of the reply. The request was
	// executed.
	ResetAfter
	// SwallowReply loses the reply, and whatever the server sends after it on
	// that connection. The request was executed, and so are those after it.
	// With no Match it is the network that lets requests pass and drops replies.
	SwallowReply
	// DelayReply holds the reply back for Fault.Delay, or until the rule is
	// lifted, and with it whatever follows on its connection.
	DelayReply
	// TrickleReply hands the reply over one byte at a time.
	TrickleReply
	// DropMessage loses a pub/sub message; the rest of the connection goes on.
	// TCP cannot do that: it stands for a message published while the
	// subscriber was reconnecting.
	DropMessage
	// DelayMessage holds a pub/sub message back for Fault.Delay, or until the
	// rule is lifted, and with it whatever follows on its connection.
	DelayMessage
	// RefuseDial refuses new connections. It takes no Match.
	RefuseDial

	partition // made by Faults.Partition only
)

// ofRequest tells whether the fault is chosen by a request, its reply's faults
// among them.
func (k Kind) ofRequest() bool { return k >= DropRequest && k <= TrickleReply }

func (k Kind) ofMessage() bool { return k == DropMessage || k == DelayMessage }

func (k Kind) String() string {
	names := [...]string{
		DropRequest: "DropRequest", DelayRequest: "DelayRequest", DuplicateRequest: "DuplicateRequest",
		ResetBefore: "ResetBefore", ResetAfter: "ResetAfter", SwallowReply: "SwallowReply",
		DelayReply: "DelayReply", TrickleReply: "TrickleReply", DropMessage: "DropMessage",
		DelayMessage: "DelayMessage", RefuseDial: "RefuseDial", partition: "Partition",
	}
	if k < DropRequest || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Fault describes one fault. Kind is required.
type Fault struct {
	Kind Kind
	// Match chooses the requests (or messages) it applies to; nil means all,
	// go-redis's own HELLO on a new connection among them.
	Match Match
	// Skip lets so many matches pass before the first fault.
	Skip int
	// Count ends the fault after so many injections; 0 means no end.
	Count int
	// Delay is how long the Delay kinds hold things back; 0 means until
	// [Rule.Lift]. No other kind takes one.
	Delay time.Duration
}

func (f Fault) validate() error {
	delays := f.Kind == DelayRequest || f.Kind == DelayReply || f.Kind == DelayMessage
	switch {
	case f.Kind < DropRequest || f.Kind > RefuseDial:
		return fmt.Errorf("lockcoretest: Fault.Kind is %v: it must be one of the kinds of this package", f.Kind)
	case f.Skip < 0:
		return fmt.Errorf("lockcoretest: Fault.Skip is %d: it must not be negative", f.Skip)
	case f.Count < 0:
		return fmt.Errorf("lockcoretest: Fault.Count is %d: it must not be negative", f.Count)
	case f.Delay < 0:
		return fmt.Errorf("lockcoretest: Fault.Delay is %v: it must not be negative", f.Delay)
	case f.Delay > 0 && !delays:
		return fmt.Errorf("lockcoretest: Fault.Delay is %v: %v does not delay", f.Delay, f.Kind)
	case f.Match != nil && f.Kind == RefuseDial:
		return fmt.Errorf("lockcoretest: Fault.Match is set: %v sees no request", f.Kind)
	}
	return nil
}

// Rule is a fault at work. Its methods may be called from any goroutine.
type Rule struct {
	fault  Fault
	faults *Faults
	origin string

	// guarded by faults.mu
	seen    int           // matches so far, skipped ones too
	claimed int           // injections begun
	fired   int           // injections done
	changed chan struct{} // closed and replaced when fired grows

	lift   sync.Once
	lifted chan struct{}
}

func newRule(f *Faults, fault Fault, origin string) *Rule {
	return &Rule{
		fault: fault, faults: f, origin: origin,
		changed: make(chan struct{}), lifted: make(chan struct{}),
	}
}

// String names the kind and the line of the test that injected it.
func (r *Rule) String() string {
	return fmt.Sprintf("%v (%s)", r.fault.Kind, r.origin)
}

// Fired is how often the fault was injected so far. What is delayed counts
// from the moment it is held back; a reply counts when it is lost, not when
// its request went by.
func (r *Rule) Fired() int {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.fired
}

// Wait returns when the fault was injected n times in all, or with ctx's
// cause. In a bubble synctest.Wait and [Rule.Fired] do as well.
func (r *Rule) Wait(ctx context.Context, n int) error {
	for {
		r.faults.mu.Lock()
		fired, changed := r.fired, r.changed
		r.faults.mu.Unlock()
		if fired >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("lockcoretest: waiting for %v: injected %d times of %d: %w", r, fired, n, context.Cause(ctx))
		}
	}
}

// Lift ends the fault: it applies to nothing more, and what it holds back goes
// on its way. Connections that it has silenced stay silent.
func (r *Rule) Lift() {
	r.faults.remove(r)
	r.lift.Do(func() { close(r.lifted) })
}

// applies tells whether the fault hits cmd, and if so counts it as begun.
func (r *Rule) applies(cmd []string) bool {
	return (r.fault.Match == nil || r.fault.Match(cmd)) && r.claim()
}

func (r *Rule) claim() bool {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	if r.seen++; r.seen <= r.fault.Skip || r.fault.Count > 0 && r.claimed >= r.fault.Count {
		return false
	}
	r.claimed++
	return true
}

// unclaim takes a claim back that was not carried out.
func (r *Rule) unclaim() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.claimed--
}

func (r *Rule) fire() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.fired++
	close(r.changed)
	r.changed = make(chan struct{})
}

// MustFire fails the test for each rule that was never injected, and logs how
// often the others were: a test of a fault that did not happen proves nothing.
func MustFire(tb testing.TB, rules ...*Rule) {
	tb.Helper()
	if len(rules) == 0 {
		tb.Error("lockcoretest: MustFire was given no rule")
	}
	for _, r := range rules {
		if n := r.Fired(); n > 0 {
			tb.Logf("lockcoretest: %v was injected %d times", r, n)
		} else {
			tb.Errorf("lockcoretest: %v was never injected", r)
		}
	}
}

// callerLine is where the test called into this package.
func callerLine() string {
	_, file, line, ok := runtime.Caller(2)
	if !ok {
		return "unknown line"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}
