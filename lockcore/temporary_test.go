package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestTemporary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		provoke   func(r *lockcoretest.Redis, c *lockcore.Client)
		temporary bool
	}{
		{"away", func(r *lockcoretest.Redis, _ *lockcore.Client) { r.Stop() }, true},
		{"hung", func(r *lockcoretest.Redis, _ *lockcore.Client) { r.Hang() }, true},
		{"loading", answers("LOADING Redis is loading the dataset in memory"), true},
		{"busy", answers("BUSY Redis is busy running a script"), true},
		{"read-only", answers("READONLY You can't write against a read only replica"), true},
		{"no rights", answers("NOPERM this user has no permissions"), false},
		{"no password", answers("NOAUTH Authentication required"), false},
		{"no memory", answers("OOM command not allowed when used memory > 'maxmemory'"), false},
		{"closed", func(_ *lockcoretest.Redis, c *lockcore.Client) { _ = c.Close(context.Background()) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lockcoretest.NewRedis(t)
				client, err := lockcore.New(r.Client(), lockcore.Config{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					r.Unhang()
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = client.Close(ctx) // one of them is already closed
				})
				m, err := client.Mutex("x", lockcore.LeaseConfig{})
				if err != nil {
					t.Fatal(err)
				}
				c.provoke(r, client)
				lease, err := m.TryLock(t.Context())
				if lease != nil || err == nil {
					t.Fatal("TryLock has not failed")
				}
				if got := lockcore.IsTemporary(err); got != c.temporary {
					t.Errorf("IsTemporary(%v) = %v", err, got)
				}
			})
		})
	}
	if lockcore.IsTemporary(nil) || lockcore.IsTemporary(errors.New("else")) || lockcore.IsTemporary(&lockcore.HeldError{}) {
		t.Error("no error, a foreign one or a lock that is held are temporary")
	}
}

func answers(text string) func(*lockcoretest.Redis, *lockcore.Client) {
	return func(r *lockcoretest.Redis, _ *lockcore.Client) { r.Server().SetError(text) }
}
