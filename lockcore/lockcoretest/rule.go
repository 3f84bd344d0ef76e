package lockcoretest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// The kinds of faults, for [Fault.Kind]: of requests, of replies, of messages, and of dials. A connection on
// which bytes were lost stays open but silent in that direction, as after a network
// failure, until the client closes it and dials again.
const (
	// DropRequest loses the request and everything after it on its connection. The request
	// is not executed.
	DropRequest = "DropRequest"
	// DelayRequest holds the request and everything after it on its connection for
	// Fault.Delay, or until the rule is lifted. The request is delivered even if the
	// client has closed the connection: so an acquire can arrive after its own release.
	DelayRequest = "DelayRequest"
	// DuplicateRequest sends the request twice and delivers the second reply, as a retry
	// of the client would.
	DuplicateRequest = "DuplicateRequest"
	// ResetBefore resets the connection instead of sending the request. The request is not
	// executed.
	ResetBefore = "ResetBefore"
	// ResetAfter resets the connection instead of delivering the reply. The request is
	// executed.
	ResetAfter = "ResetAfter"
	// SwallowReply loses the reply and everything the server sends after it on its
	// connection. The request and those after it are executed.
	SwallowReply = "SwallowReply"
	// DelayReply holds the reply and everything after it on its connection for
	// Fault.Delay, or until the rule is lifted.
	DelayReply = "DelayReply"
	// TrickleReply delivers the reply one byte at a time.
	TrickleReply = "TrickleReply"
	// RepeatReply delivers the reply twice, as a faulty proxy does. To the client, the second one is the
	// reply to its next request, and so on.
	RepeatReply = "RepeatReply"
	// DropMessage loses a pub/sub message and nothing else on its connection. TCP cannot
	// lose a single message: it stands for a message published while the subscriber was
	// reconnecting.
	DropMessage = "DropMessage"
	// DelayMessage holds a pub/sub message and everything after it on its connection for
	// Fault.Delay, or until the rule is lifted.
	DelayMessage = "DelayMessage"
	// RefuseDial refuses new connections. Match must be nil.
	RefuseDial = "RefuseDial"
)

var (
	ofRequests = []string{DropRequest, DelayRequest, DuplicateRequest, ResetBefore, ResetAfter, SwallowReply, DelayReply, TrickleReply, RepeatReply}
	ofMessages = []string{DropMessage, DelayMessage}
)

// Fault describes one fault. Kind is required.
type Fault struct {
	Kind string // one of the constants
	// Match selects the requests or messages that the fault applies to. nil means all,
	// including the HELLO that go-redis sends on a new connection.
	//
	// For a request, cmd is its name in upper case and its arguments as sent. For [DropMessage]
	// and [DelayMessage], cmd is the kind of the message (message, pmessage or smessage), the
	// pattern of a pmessage, the channel, and the payload. A Match is called from several
	// goroutines, and must neither keep nor modify cmd.
	Match func(cmd []string) bool
	// Skip is the number of matches before the first injection.
	Skip int
	// Count is the maximum number of injections; 0 means no limit.
	Count int
	// Delay is how long the Delay kinds hold data back; 0 means until [Rule.Lift]. Other
	// kinds require 0.
	Delay time.Duration
}

func (f Fault) validate() error {
	delays := f.Kind == DelayRequest || f.Kind == DelayReply || f.Kind == DelayMessage
	switch {
	case f.Kind != RefuseDial && !slices.Contains(ofRequests, f.Kind) && !slices.Contains(ofMessages, f.Kind):
		return fmt.Errorf("lockcoretest: Fault.Kind is %q; it must be one of the kinds of this package", f.Kind)
	case f.Delay > 0 && !delays:
		return fmt.Errorf("lockcoretest: Fault.Delay is %v; it must be 0 for %v, which does not delay", f.Delay, f.Kind)
	case f.Match != nil && f.Kind == RefuseDial:
		return fmt.Errorf("lockcoretest: Fault.Match is set; it must be nil for %v, which applies to no request", f.Kind)
	}
	return nil
}

// Rule is an active fault. Its methods may be called from any goroutine.
type Rule struct {
	fault  Fault
	faults *Faults

	// guarded by faults.mu
	seen    int           // matches so far, including skipped ones
	claimed int           // injections started
	fired   int           // injections completed
	changed chan struct{} // closed and replaced when fired grows

	lift   func() // closes lifted
	lifted <-chan struct{}
}

func newRule(f *Faults, fault Fault) *Rule {
	over, lift := context.WithCancel(context.Background())
	return &Rule{fault: fault, faults: f, changed: make(chan struct{}), lifted: over.Done(), lift: lift}
}

// Fired returns how often the fault was injected so far. A delay counts from the moment it
// begins. A fault of a reply counts when the reply is lost, not when the request passes.
func (r *Rule) Fired() int {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.fired
}

// Wait returns nil after the fault was injected n times in total, or an error with the
// cause of ctx. In a bubble, synctest.Wait and [Rule.Fired] serve as well.
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
			return fmt.Errorf("lockcoretest: waiting for %v: injected %d times of %d: %w", r.fault.Kind, fired, n, context.Cause(ctx))
		}
	}
}

// Lift ends the fault. It applies to nothing more, and the data that it holds back is
// delivered. Connections that it has silenced stay silent.
func (r *Rule) Lift() {
	f := r.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == r {
		f.cut = nil
	}
	f.rules = slices.DeleteFunc(slices.Clone(f.rules), func(other *Rule) bool { return other == r })
	r.lift()
}

// applies reports whether the fault applies to cmd, and if so counts an injection as started.
func (r *Rule) applies(cmd []string) bool {
	if r.fault.Match != nil && !r.fault.Match(cmd) {
		return false
	}
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	if r.seen++; r.seen <= r.fault.Skip || r.fault.Count > 0 && r.claimed >= r.fault.Count {
		return false
	}
	r.claimed++
	return true
}

// unclaim cancels an injection that was started but not completed.
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

// MustFire fails the test for each rule that was never injected, since the test then proves
// nothing. It logs how often the others were injected.
func MustFire(tb testing.TB, rules ...*Rule) {
	tb.Helper()
	if len(rules) == 0 {
		tb.Error("lockcoretest: MustFire needs at least one rule")
	}
	for _, r := range rules {
		if n := r.Fired(); n > 0 {
			tb.Logf("lockcoretest: %v was injected %d times", r.fault.Kind, n)
		} else {
			tb.Errorf("lockcoretest: %v was never injected", r.fault.Kind)
		}
	}
}
