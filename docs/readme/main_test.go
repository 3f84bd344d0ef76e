package main

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
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
		// The first program may log that it has stopped after the second one leads.
		led := regexp.MustCompile(`msg=leading token=(\d+)\n`).FindAllSubmatch(said.Bytes(), -1)
		if len(led) != 2 || bytes.Compare(led[0][1], led[1][1]) >= 0 || strings.Count(said.String(), "msg=stopped\n") != 2 {
			t.Errorf("the programs said\n%s", said.String())
		}
	})
}
