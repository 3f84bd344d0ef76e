package wire

import (
	"fmt"
	"testing"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A subscription that is not confirmed is sent again. If it is no longer wanted by then, it is
// ended, since the server may confirm it yet.
func TestUnconfirmedSubscriptionIsEnded(t *testing.T) {
	t.Parallel()
	s := &Subscription{channels: map[string]*channel{}, changed: make(chan struct{}), started: true, pipe: &conn.Pipe{}}
	stop := s.ListenTo("a", false)
	sends := func(want string) {
		t.Helper()
		if got, _ := s.unsent(s.pipe); fmt.Sprint(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sends("[[subscribe a]]")
	s.SubscribeAgain()
	sends("[[subscribe a]]")
	s.SubscribeAgain()
	stop()
	sends("[[unsubscribe a]]")
}
