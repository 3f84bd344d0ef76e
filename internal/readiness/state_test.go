package readiness_test

import (
	"context"
	"testing"

	"github.com/noonlock/noonlock/internal/readiness"
)

// A State whose Run has ended is not ready from the moment end returns, whether its
// context has ended or not. A late end does not affect the next Run.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	for name, cancels := range map[string]bool{"its context ended": true, "its context is still active": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s readiness.State
			for range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				end := s.Run(ctx)
				s.Works(1 << 62)
				if err := s.Err(); err != nil {
					t.Fatalf("while it runs: %v", err)
				}
				if cancels {
					cancel()
				}
				end()
				if s.Err() == nil {
					t.Fatal("ready after the end")
				}
				cancel()
			}
		})
	}
}
