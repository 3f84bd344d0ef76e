package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !retry.Sleep(t.Context(), time.Second, nil) || time.Since(start) != time.Second {
			t.Errorf("it slept for %v", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if start = time.Now(); retry.Sleep(ctx, time.Minute, nil) || time.Since(start) != time.Second {
			t.Errorf("it slept for %v, although its context had ended", time.Since(start))
		}
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		if start = time.Now(); retry.Sleep(t.Context(), time.Minute, stop) || time.Since(start) != time.Second {
			t.Errorf("it slept for %v, although it was stopped", time.Since(start))
		}
	})
}

func TestPauses(t *testing.T) {
	t.Parallel()
	p := retry.Pauses(10*time.Millisecond, 500*time.Millisecond)
	for i := range 100 {
		d := p.NextBackOff()
		if most := 750 * time.Millisecond; d < 5*time.Millisecond || d > most || i == 0 && d > 15*time.Millisecond {
			t.Errorf("pause %d is %v", i, d)
		}
	}
}
