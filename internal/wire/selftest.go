package wire

import (
	"context"
	"net"
	"slices"
	"time"
)

// The scripts of the queue use the receiver count of PUBLISH to find out whether a waiter's
// process is alive. This works only if the count includes the subscription of that process. A
// self-test checks it: the process publishes a message to itself. The test also checks that the
// subscription works, because a connection may be up and deliver nothing, or lead to a server
// that was demoted.
//
//	begin, doubt ──► testing ──► proved
//	                    ├─ not counted or received ─► a new connection, tested again
//	                    ├─ no answer ──► tested again after a pause
//	                    └─ refused ──► not trusted, until the next connection
//
// Behind some proxies the server never counts this process. So the pauses grow with each test that
// fails, and those between two connections, too.

const (
	// retestAfter is the shortest time between two tests that waiters request because they
	// may have missed a message, and the shortest pause after a failure.
	retestAfter = time.Second

	// longestRetest is the longest pause before a failed test is repeated, or between two
	// replacements of a connection that failed the test.
	longestRetest = time.Minute

	// selfTest is the message of a self-test.
	selfTest = "s"

	// publishWithin is how long the answer to PUBLISH may take in a self-test: as long as to any
	// request. It fails as a request does, and then its connection is replaced.
	publishWithin = 3 * time.Second

	// echoWithin is how long the message of a self-test may take after that.
	echoWithin = time.Second
)

// A receipt is what a self-test has found about the present connection.
type receipt string

const (
	receiptNone    receipt = "" // it was not tested, or has no channel for messages to this process
	receiptProved  receipt = "proved"
	receiptAbsent  receipt = "a message was not counted or not received"
	receiptUnknown receipt = "PUBLISH was not answered"
	receiptRefused receipt = "PUBLISH was refused"
	receiptDemoted receipt = "a server was a replica" // no test found this, see demoted
)

// startTest begins a self-test. If one is under way, it is repeated: its server may have changed since it
// began. The caller holds mu.
func (s *Subscription) startTest() {
	if !s.up || s.ctx.Err() != nil {
		return
	}
	if s.tests++; s.tests == 1 {
		s.wg.Go(s.test)
	}
}

// Trusted implements Messages.
func (s *Subscription) Trusted() bool {
	return s.is(func() bool { return s.found == receiptProved })
}

// Suspect implements Messages. Tests are at least retestAfter apart.
func (s *Subscription) Suspect(since time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tests == 0 && s.cfg.Now()-s.tested > max(since, retestAfter) {
		s.startTest()
	}
}

// Retest implements Messages. A demoted server still delivers messages, but the new primary does not
// count this process as a receiver.
func (s *Subscription) Retest(ctx context.Context) bool {
	s.Suspect(0)
	s.await(ctx, func() bool { return s.tests == 0 })
	return s.Trusted()
}

// retestNow starts a self-test because a connection for requests was replaced. The new
// connection may lead to another server than the subscription.
func (s *Subscription) retestNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startTest()
}

// test finds out whether the receiver count can be trusted on the present connection. If not, the timer
// next causes a repetition or a new connection. Each result is logged once until the count is proved.
func (s *Subscription) test() {
	found, err := s.publishToSelf()
	s.mu.Lock()
	defer s.mu.Unlock()
	present := s.up && s.found != receiptDemoted && s.ctx.Err() == nil
	if present && s.tests > 1 && err == nil {
		s.tests = 1
		s.wg.Go(s.test)
		return
	}
	s.tests, s.tested = 0, max(1, s.cfg.Now())
	s.announce()
	if !present {
		return // the next connection is tested anyway
	}
	if s.found = found; found == receiptProved {
		s.pauses.Reset()
		s.logged = nil
	}
	if found == receiptProved || found == receiptNone { // the next channel is tested anyway
		return
	}
	if !slices.Contains(s.logged, found) {
		s.logged = append(s.logged, found)
		const message = "receiver count not trusted; a dead waiter delays the queue by the TTL of its grant"
		if found == receiptRefused {
			Log(s.cfg.Logger, err, message, "reason", string(found))
		} else {
			s.cfg.Logger.Info(message, "reason", string(found))
		}
	}
	pause := s.pauses.NextBackOff()
	if found == receiptAbsent {
		pause = time.Until(s.replaced.Add(pause)) // so the first replacement is immediate
	}
	s.next.Reset(pause)
}

// demoted is called when a server has refused a request as a replica does, or when another one
// has become the primary. The subscription may be at the former primary, which does not report
// there that it was demoted.
//
// The replacement may be delayed, but is never omitted: from now on, the requests may use
// the new primary, and cause no other refusal.
func (s *Subscription) demoted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipe != nil && s.found != receiptDemoted && s.ctx.Err() == nil {
		s.found = receiptDemoted
		s.next.Reset(time.Until(s.replaced.Add(retestAfter)))
	}
}

// act is called when a pause is over. What happened during the pause may have made it needless.
func (s *Subscription) act() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.found {
	case receiptAbsent, receiptDemoted:
		s.replaced = time.Now()
		s.fail(net.ErrClosed) // run makes another one
	case receiptUnknown:
		s.startTest()
	default:
	}
}

// strays reports whether the subscription is at a server with another address.
func (s *Subscription) strays(from string) bool {
	return s.is(func() bool { return s.pipe != nil && s.pipe.Addr != from })
}

// publishToSelf sends this process a message. If it is counted and arrives, the count of
// receivers distinguishes live processes from dead ones.
func (s *Subscription) publishToSelf() (receipt, error) {
	s.mu.Lock()
	channel := ""
	for name, ch := range s.channels {
		if s.up && ch.listeners > 0 && ch.confirmed == s.pipe {
			channel = name
		}
	}
	s.echoed = false
	s.mu.Unlock()
	if channel == "" {
		return receiptNone, nil
	}
	a := s.requests.Do(s.ctx, Command(s.sharded+"publish", channel, selfTest).On(channel).Command, publishWithin)
	ctx, cancel := context.WithTimeout(s.ctx, echoWithin)
	defer cancel()
	switch err := a.Err; {
	case IsRefused(err) && !MayRetryLater(err) && !HasCode(err, "MOVED"): // which is about this channel
		return receiptRefused, err
	case err != nil:
		return receiptUnknown, err
	case a.Value == int64(0) || !s.await(ctx, func() bool { return s.echoed }):
		return receiptAbsent, nil
	}
	return receiptProved, nil
}
