package serve_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/serve"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
)

// config returns that of a replica with a noon each second.
func config(t *testing.T, addr string) (cfg serve.Config, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "lottery.db")
	at, err := store.Parse("sqlite:"+file, "", certs.Client{})
	testenv.Must(t, err)
	return serve.Config{
		Redis: &redis.UniversalOptions{Addrs: []string{addr}}, Database: at, Entrants: store.Entrants{"a": true}, Schedule: "@every 1s",
		Location: time.UTC, Winners: 1, Lease: time.Second, HTTP: "off", Logger: logr.Discard(),
	}, file
}

// start runs a replica until stop is called, which returns the error of Run.
func start(t *testing.T, cfg serve.Config) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	replica, err := serve.New(ctx, cfg)
	testenv.Must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- replica.Run(ctx) }()
	return func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(testenv.Patience):
			return context.DeadlineExceeded
		}
	}
}

// awaitDraws waits for so many draws.
func awaitDraws(t *testing.T, file string, n int) {
	t.Helper()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	testenv.Must(t, err)
	defer db.Close()
	for end, drawn := time.Now().Add(testenv.Patience), 0; drawn < n; time.Sleep(20 * time.Millisecond) {
		if _ = db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM draws").Scan(&drawn); time.Now().After(end) { // no table yet
			t.Fatalf("%d noons were drawn, want %d", drawn, n)
		}
	}
}

// FAULTS 63: a logger that blocks, such as a full pipe, delays neither the draws nor the end.
func TestFault63_BlockedLogger(t *testing.T) {
	t.Parallel()
	cfg, file := config(t, servers.Redis(t).Addr())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	cfg.Logger = funcr.New(func(string, string) { <-release }, funcr.Options{})
	stop := start(t, cfg)
	awaitDraws(t, file, 2)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
