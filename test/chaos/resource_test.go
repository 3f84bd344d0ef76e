package chaos

import (
	"bufio"
	"encoding/json"
	"net"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A resource stores the greatest token of each unit, and refuses smaller ones.
type resource struct {
	listener net.Listener
	log      *history.Log
	careless bool // it compares nothing: a sabotage
	mu       sync.Mutex
	newest   map[string]uint64
}

func newResource(t testing.TB, log *history.Log, careless bool) *resource {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &resource{listener: l, log: log, careless: careless, newest: map[string]uint64{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

func (r *resource) serve(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		var write history.Event
		if err := json.Unmarshal(lines.Bytes(), &write); err != nil {
			return
		}
		answer := "ok\n"
		if !r.accept(write) {
			answer = "stale\n"
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

func (r *resource) accept(write history.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	write.What = history.Accepted
	if write.Token < r.newest[write.Name] && !r.careless {
		write.What = history.Refused
	} else {
		r.newest[write.Name] = write.Token
	}
	r.log.Add(write)
	return write.What == history.Accepted
}
