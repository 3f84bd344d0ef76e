package chaos

import (
	"net"
	"net/rpc"
	"sync"
	"testing"

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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	server := rpc.NewServer()
	r := &resource{log: log, careless: careless, newest: map[string]uint64{}}
	must(t, server.RegisterName("Resource", r))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(c)
		}
	}()
	return l.Addr().String()
}

// Write is a call of a worker.
func (r *resource) Write(write history.Event, accepted *bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *accepted = r.careless || write.Token >= r.newest[write.Name]; *accepted {
		write.What, r.newest[write.Name] = history.Accepted, write.Token
	} else {
		write.What = history.Refused
	}
	r.log.Add(write)
	return nil
}
