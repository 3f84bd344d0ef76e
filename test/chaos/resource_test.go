package chaos

import (
	"net/http/httptest"
	"net/rpc"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A resource stores the greatest token of each unit, and refuses smaller ones.
type resource struct {
	log      *history.Log
	careless bool // it compares nothing: a sabotage
	mu       sync.Mutex
	newest   map[string]uint64
}

// newResource starts a resource, and returns its address.
func newResource(t testing.TB, log *history.Log, careless bool) string {
	t.Helper()
	server := rpc.NewServer()
	r := &resource{log: log, careless: careless, newest: map[string]uint64{}}
	testenv.Must(t, server.RegisterName("Resource", r))
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return listener.Listener.Addr().String()
}

// Write is a call of a worker.
func (r *resource) Write(write history.Event, _ *struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	write.What = history.Refused
	if r.careless || write.Token >= r.newest[write.Name] {
		write.What, r.newest[write.Name] = history.Accepted, write.Token
	}
	r.log.Add(write)
	return nil
}
