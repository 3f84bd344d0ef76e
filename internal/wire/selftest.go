package wire

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const (
	// firstPause and longestPause bound the pauses between two replacements of a connection on which messages do not
	// arrive. Behind some proxies, they never do.
	firstPause, longestPause = time.Second, time.Minute

	// publishWithin and echoWithin are how long a self-test waits for the answer to PUBLISH, and then for the message.
	publishWithin, echoWithin = 3 * time.Second, time.Second

	// selfTest is the message of a self-test.
	selfTest = "s"
)

var errDeaf = errors.New("lockcore: a message of the process to itself did not arrive")

// test tests a connection: the process publishes a message to itself. There is a test when the connection has its
// first channel for messages to this process, and after each replacement of the connection for requests, which may
// lead to another server. If the message does not arrive, the connection is replaced. If PUBLISH is refused for good, the
// next replacement causes the next test. Another failed test is repeated. The first failure is logged.
func (s *Subscription) test(ctx context.Context, p *conn.Pipe) {
	for tested := -1; ; {
		channel := ""
		s.await(ctx, func() bool {
			channel, s.echoed = s.ownChannel(), false
			return channel != "" && s.doubts != tested
		})
		s.mu.Lock()
		tested = s.doubts
		s.mu.Unlock()
		err := s.requests.Do(ctx, Command(s.sharded+"publish", channel, selfTest).On(channel).Command, publishWithin).Err
		if err == nil {
			waits, cancel := context.WithTimeout(ctx, echoWithin)
			if !s.await(waits, func() bool { return s.echoed }) {
				err = errDeaf
			}
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		switch pause := s.judge(err); {
		case errors.Is(err, errDeaf):
			s.replace(p, pause)
			return
		case MayRetry(err):
			retry.Sleep(ctx, pause, nil) // in full, as the refusal of a replica replaces the connection for requests
			tested = -1
		}
	}
}

// judge takes the result of a test. It returns the pause after a failure.
func (s *Subscription) judge(err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.pauses.Reset()
		s.failedTest = false
		return 0
	}
	if !s.failedTest {
		s.failedTest = true
		Log(s.cfg.Logger, err, "subscription test failed; handovers may be slower")
	}
	return s.pauses.NextBackOff()
}

// doubt causes a test, as a connection for requests was replaced.
func (s *Subscription) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts++
	s.announce()
}

// demoted is called when a server has refused a request as a replica does, or when another one
// has become the primary. The subscription may be at the former primary, which does not report
// there that it was demoted.
//
// The replacement may be delayed, but is never omitted: from now on, the requests may use
// the new primary, and cause no other refusal.
func (s *Subscription) demoted() {
	s.mu.Lock()
	p := s.pipe
	known := s.demotedPipe == p
	s.demotedPipe = p
	s.mu.Unlock()
	if p != nil && !known {
		s.replace(p, firstPause)
	}
}

// replace replaces a connection, a pause after the last replacement at the earliest.
func (s *Subscription) replace(p *conn.Pipe, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.AfterFunc(time.Until(s.replaced.Add(pause)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pipe == p {
			s.replaced = time.Now()
			s.fail(errReplaced) // run makes another one
		}
	})
}

var errReplaced = errors.New("lockcore: another connection is made, as messages may not arrive")

// strays reports whether the subscription is at a server with another address.
func (s *Subscription) strays(from string) bool {
	return s.is(func() bool { return s.pipe != nil && s.pipe.Addr != from })
}
