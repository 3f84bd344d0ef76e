package main

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The second program leads as soon as the first one has stopped, and its token is greater.
func TestProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
		server := lockcoretest.NewRedis(t)
		ended := make(chan error, 2)
		start := func() context.CancelFunc {
			ctx, stop := context.WithCancel(t.Context())
			go func() { ended <- run(ctx, server.Client()) }()
			time.Sleep(time.Second)
			return stop
		}
		stops := []context.CancelFunc{start(), start()}
		for _, stop := range stops {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		lines := regexp.MustCompile(`msg=leading token=(\d+)\n.*msg=stopped\n.*msg=leading token=(\d+)\n.*msg=stopped\n$`)
		if found := lines.FindSubmatch(said.Bytes()); found == nil || bytes.Compare(found[1], found[2]) >= 0 {
			t.Errorf("the programs said\n%s", said.String())
		}
	})
}
