package election_test

import (
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A server without replicas elects nobody who needs one.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a := e.replica(e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", MinReplicas: 1}), quick()).run()
		time.Sleep(time.Minute)
		if err := a.le.Ready(); !errors.Is(err, lockcore.ErrNotReplicated) {
			t.Errorf("Ready: %v", err)
		}
		b := e.replica(e.Client("b"), quick()).run()
		e.Until("another replica leads", b.le.IsLeader)
		if a.le.IsLeader() {
			t.Error("it leads")
		}
	})
}
