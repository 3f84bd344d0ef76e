package wire

import (
	"fmt"
	"testing"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// subscribed returns a Subscription with a connection and no goroutines.
func subscribed(t *testing.T, cfg Config) *Subscription {
	t.Helper()
	s := &Subscription{channels: newChannels(func() {}, cfg), started: true}
	s.ctx, s.current = t.Context(), &conn.Conn{}
	return s
}

// Messages may have been missed before each confirmation of a channel, also before those that follow the first one on
// a connection.
// Caught mutant: only the first confirmation causes checks.
func TestEachConfirmationCausesChecks(t *testing.T) {
	t.Parallel()
	var missed []string
	s := subscribed(t, Config{Sharded: true, Missed: func(name string) { missed = append(missed, name) }})
	s.ListenTo("channel 1", "one")
	s.ListenTo("channel 2", "two")
	watched := 0
	s.Watch("channel 3", func(string) { watched++ })
	for _, name := range []string{"1", "2", "3", "1"} {
		s.receive([]any{"ssubscribe", "channel " + name, int64(1)})
	}
	if fmt.Sprint(missed) != "[one two one]" || watched != 1 {
		t.Errorf("checks of %q and %d of the watch", missed, watched)
	}
}

// A subscription that is not confirmed is sent again. If it is no longer wanted by then, it is
// ended, since the server may confirm it yet.
func TestUnconfirmedSubscriptionIsEnded(t *testing.T) {
	t.Parallel()
	s := subscribed(t, Config{Sharded: true})
	stop := s.ListenTo("a", "")
	sends := func(want string) {
		t.Helper()
		if got, _ := s.unsent(s.current); fmt.Sprint(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sends("[[ssubscribe a]]")
	s.SubscribeAgain()
	sends("[[ssubscribe a]]")
	s.SubscribeAgain()
	stop()
	sends("[[sunsubscribe a]]")
}
