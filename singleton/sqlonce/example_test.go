package sqlonce_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// register is a resource that is no SQL database: a value that only the newest holder may set.
type register struct {
	mu    sync.Mutex
	seen  map[string]uint64
	value string
}

// Admit implements sqlonce.Fence.
func (r *register) Admit(_ context.Context, run sqlonce.Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admit(run)
}

func (r *register) admit(run sqlonce.Run) error {
	if err := sqlonce.CheckToken(run, r.seen[run.Job]); err != nil {
		return err
	}
	r.seen[run.Job] = run.Token
	return nil
}

// Set compares and writes under one lock, so that no holder can be superseded in between.
func (r *register) Set(run sqlonce.Run, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(run); err != nil {
		return err
	}
	r.value = value
	return nil
}

var _ sqlonce.Fence = (*register)(nil)

func ExampleFence() {
	r := &register{seen: map[string]uint64{}}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	first := sqlonce.Run{Job: "lottery", Tick: noon, Attempt: 1, Token: 41}
	second := sqlonce.Run{Job: "lottery", Tick: noon, Attempt: 2, Token: 42}

	fmt.Println(r.Set(second, "drawn by the successor"))
	fmt.Println(r.Set(first, "drawn by the one that was frozen"))
	fmt.Println(r.value)
	// Output:
	// <nil>
	// sqlonce: job "lottery", tick 2026-01-01T12:00:00Z: token 41 is stale, token 42 was seen
	// drawn by the successor
}
