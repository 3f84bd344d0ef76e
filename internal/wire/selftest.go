package wire

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const (
	// firstPause and longestPause bound the pauses after failed tests. Behind some proxies, messages never arrive.
	firstPause, longestPause = time.Second, time.Minute

	// publishTimeout and echoTimeout limit the wait for the answer to PUBLISH, and then for the message.
	publishTimeout, echoTimeout = 3 * time.Second, time.Second
)

var errNoEcho = errors.New("lockcore: a message of the process to itself did not arrive")

// A selfTest publishes a message to this process. It runs when a connection has its first channel for messages to this
// process, and after each replacement of the connection for requests, which may lead to another server. Only the first
// of several failures is logged.
type selfTest struct {
	channels *channels
	requests *conn.Line

	// channels.mu guards these.
	reconnects int // replacements of the connection for requests
	failed     bool
	pauses     retry.Backoff
}

// run tests a connection until ctx ends. It returns early, with a pause before the next connection, if the message does
// not arrive. If PUBLISH is refused for good, the next test follows the next reconnect. Another failed test is
// repeated.
func (t *selfTest) run(ctx context.Context) (pause time.Duration, silent bool) {
	for tested := -1; ; {
		channel := ""
		t.channels.await(ctx, func() bool {
			channel, t.channels.echoed = t.channels.ownChannel(), false
			return channel != "" && t.reconnects != tested
		})
		t.channels.mu.Lock()
		tested = t.reconnects
		t.channels.mu.Unlock()
		err := t.requests.Do(ctx, Command(t.channels.prefix+"publish", channel, testMessage).On(channel).Command, publishTimeout).Err
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, echoTimeout)
			if !t.channels.await(limited, func() bool { return t.channels.echoed }) {
				err = errNoEcho
			}
			cancel()
		}
		if ctx.Err() != nil {
			return 0, false
		}
		switch pause := t.record(err); {
		case errors.Is(err, errNoEcho):
			return pause, true
		case MayRetry(err):
			retry.Sleep(ctx, pause, nil) // in full, as the refusal of a replica replaces the connection for requests
			tested = -1
		}
	}
}

// record records the result of a test. It returns the pause after a failure.
func (t *selfTest) record(err error) time.Duration {
	t.channels.mu.Lock()
	defer t.channels.mu.Unlock()
	if err == nil {
		t.pauses.Reset()
		t.failed = false
		return 0
	}
	if !t.failed {
		t.failed = true
		Log(t.channels.cfg.Logger, err, "subscription test failed; handovers may be slower")
	}
	return t.pauses.NextBackOff()
}

// reconnected causes a test, because the connection for requests was replaced.
func (t *selfTest) reconnected() {
	t.channels.mu.Lock()
	defer t.channels.mu.Unlock()
	t.reconnects++
	t.channels.announce()
}
