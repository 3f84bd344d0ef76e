package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The second of two programs waits for the first one, and says so. A third one waits for a minute, as long as
// somebody else holds the lock. A fourth one says that it finds no Redis.
func TestProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
		server := lockcoretest.NewRedis(t)
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- run(t.Context(), server.Client()) }()
		}
		start := time.Now()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took < 20*time.Second || took > 25*time.Second {
			t.Errorf("two programs took %v", took)
		}
		if strings.Count(said.String(), `msg="waiting for a lock" name=reindex holder=`) != 1 {
			t.Errorf("two programs said\n%s", said.String())
		}

		client, err := lockcore.New(server.Client(), lockcore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())
		m, err := client.Mutex("reindex", lockcore.LeaseConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		if err := run(t.Context(), server.Client()); !errors.Is(err, lockcore.ErrNotAcquired) || time.Since(start) < time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		server.Stop()
		if err := run(ctx, server.Client()); err == nil || strings.Count(said.String(), `msg="lock request failed; retrying" name=reindex locks=1 err=`) != 1 {
			t.Errorf("without Redis: %v, and it said\n%s", err, said.String())
		}
	})
}
