package wire

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
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

const (
	// retestAfter is the shortest time between two tests that waiters request because they
	// may have missed a message.
	retestAfter = time.Second

	// longestRetest is the longest pause before a failed test is repeated, or before
	// another connection that failed the test is replaced.
	longestRetest = time.Minute

	// selfTest is the message of a self-test.
	selfTest = "s"

	// publishWithin is how long the answer to PUBLISH may take in a self-test: as long as to any
	// request. It fails as a request does, and then its connection is replaced.
	publishWithin = 3 * time.Second

	// echoWithin is how long the message of a self-test may take after that.
	echoWithin = time.Second
)

// The results of a self-test.
type receipt int

const (
	receiptProved  receipt = iota
	receiptAbsent          // the message was not counted, or not received
	receiptUnknown         // PUBLISH was not answered
	receiptRefused         // PUBLISH is not allowed
	receiptIdle            // there is no channel for messages to this process
)

// startTest begins a self-test; mu is held.
func (s *Subscription) startTest() {
	if s.testing != nil {
		s.again = true
		return
	}
	if s.ctx.Err() == nil {
		s.testing = make(chan struct{})
		s.wg.Go(s.test)
	}
}

// Suspect starts a self-test because a message may have been missed, unless the last test
// ended within since or retestAfter.
func (s *Subscription) Suspect(since time.Duration) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up && s.testing == nil && now-s.tested > max(since, retestAfter) {
		s.startTest()
	}
}

// Retest repeats the self-test and reports whether the count of receivers can be
// trusted. A demoted server still delivers messages, but the new primary does not
// count this process as a receiver.
func (s *Subscription) Retest(ctx context.Context) bool {
	s.Suspect(0)
	s.mu.Lock()
	testing := s.testing
	s.mu.Unlock()
	if testing != nil {
		select {
		case <-testing:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	return s.Trusted()
}

// retestNow starts a self-test because a connection for requests was replaced. The new
// connection may lead to another server than the subscription.
func (s *Subscription) retestNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		s.startTest()
	}
}

// test finds out whether the receiver count can be trusted on the present connection. If
// not, react schedules a repetition or a new connection.
func (s *Subscription) test() {
	defer s.decide()
	for {
		found, err := s.publishToSelf()
		s.mu.Lock()
		if s.again && s.ctx.Err() == nil {
			s.again = false
			s.mu.Unlock()
			continue
		}
		s.trusted, s.tested = found == receiptProved && s.up, s.cfg.Now()
		close(s.testing)
		s.testing = nil
		s.channels.announce()
		s.react(found, err)
		s.mu.Unlock()
		return
	}
}

// react handles the result of a test. The caller holds mu. A state is logged once, however
// often the test is repeated.
func (s *Subscription) react(found receipt, err error) {
	if found == receiptProved {
		s.failures, s.redials, s.refused = 0, 0, false
		return
	}
	if s.ctx.Err() != nil || !s.up || s.pipe == nil || found == receiptIdle {
		return // the next connection or channel is tested anyway
	}
	const message = "receiver count not trusted; a dead waiter delays the queue by the TTL of its grant"
	s.failures++
	switch {
	case found == receiptRefused && !s.refused:
		s.refused = true
		Log(s.cfg.Logger, err, message, "reason", found.String())
	case s.failures == 1:
		s.cfg.Logger.Info(message, "reason", found.String())
	}
	l := s.pipe
	switch found {
	case receiptAbsent:
		// The first replacement is immediate. Behind some proxies the server never counts
		// this process. This must not cost a connection per second.
		pause := time.Duration(0)
		if s.redials++; s.redials > 1 {
			pause = min(time.Second<<min(s.redials, 10), longestRetest)
		}
		s.later(pause, func() {
			if s.pipe == l && !s.trusted {
				go l.drop() // run sees it, and makes another
			}
		})
	case receiptUnknown:
		s.later(min(time.Second<<min(s.failures-1, 10), longestRetest), func() {
			if s.pipe == l && !s.trusted {
				s.startTest()
			}
		})
	default:
	}
}

// later calls f, under mu, after a pause, unless the subscription is stopped.
func (s *Subscription) later(pause time.Duration, f func()) {
	s.wg.Go(func() {
		if retry.Sleep(s.ctx, pause, nil) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ctx.Err() == nil {
				f()
			}
		}
	})
}

// demoted is called when a server has refused a request as a replica does, or when another one
// has become the primary. The subscription may be at the former primary, which does not report
// there that it was demoted.
func (s *Subscription) demoted() {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up || s.pipe == nil || s.leaving || s.ctx.Err() != nil {
		return
	}
	// The replacement may be delayed, but is never omitted: from now on, the requests may use
	// the new primary, and cause no other refusal.
	pause := time.Duration(0)
	if s.redialed > 0 {
		pause = max(0, s.redialed+retestAfter-now)
	}
	s.leaving, s.trusted = true, false
	s.later(pause, func() {
		s.leaving, s.redialed = false, max(1, s.cfg.Now())
		if s.pipe != nil {
			go s.pipe.drop() // run sees it, and makes another
		}
	})
}

// strays reports whether the subscription is at a server with another address.
func (s *Subscription) strays(from string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipe != nil && s.pipe.addr != from
}

// publishToSelf sends this process a message. If it is counted and arrives, the count of
// receivers distinguishes live processes from dead ones.
func (s *Subscription) publishToSelf() (receipt, error) {
	select {
	case <-s.self: // the message of an earlier test
	default:
	}
	s.mu.Lock()
	channel, ok := s.channels.own()
	s.mu.Unlock()
	if !ok {
		return receiptIdle, nil
	}
	publish := "publish"
	if s.cfg.Sharded {
		publish = "spublish"
	}
	a := s.requests.do(s.ctx, Command(publish, channel, selfTest), publishWithin)
	n, _ := a.Value.(int64)
	err := a.Err
	switch {
	case HasCode(err, "MOVED"):
		return receiptUnknown, err // only this channel has moved
	case err != nil && IsRefused(err) && !IsTransient(err) && !IsExhausted(err):
		return receiptRefused, err
	case err != nil:
		return receiptUnknown, err
	case n == 0:
		return receiptAbsent, nil
	}
	switch {
	case retry.Sleep(s.ctx, echoWithin, s.self):
		return receiptAbsent, nil
	case s.ctx.Err() != nil:
		return receiptUnknown, s.ctx.Err()
	}
	return receiptProved, nil
}

func (r receipt) String() string {
	return [...]string{"proved", "a message was not counted or not received", "PUBLISH was not answered", "PUBLISH was refused", "no channel"}[r]
}
