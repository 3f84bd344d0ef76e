package readiness_test

import (
	"context"
	"testing"

	"github.com/noonlock/noonlock/internal/readiness"
)

// What has ended is not ready, whether its context ended or not, from the moment in
// which end returns; and its end does not end the next run.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	for name, cancels := range map[string]bool{"its context ended": true, "its context goes on": false} {
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
