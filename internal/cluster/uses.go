package cluster

import (
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
)

// uses are the callers of Start and Watch for all names.
type uses struct {
	mu  sync.Mutex // Its holder does not block.
	all map[*use]struct{}
}

// A use is one caller of Start or Watch. It continues at the new server when its slot moves.
type use struct {
	slot   int
	attach func(s *wire.Subscription) (stop func())
	server *wire.Server // nil before the server is known
	stop   func()
}

// begin begins a use at the current server of a slot. known reports whether there is one.
func (u *uses) begin(slot int, owner func(slot int) *wire.Server, attach func(s *wire.Subscription) (stop func())) (stop func(), known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := &use{slot: slot, attach: attach, stop: func() {}}
	u.all[one] = struct{}{}
	one.move(owner(slot))
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.all, one)
		one.stop()
	}, one.server != nil
}

func (u *use) move(to *wire.Server) {
	if to == nil || to == u.server {
		return
	}
	u.stop()
	u.server, u.stop = to, u.attach(to.Subscription())
}

// move moves all uses to the current servers of their slots.
func (u *uses) move(owner func(slot int) *wire.Server) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for one := range u.all {
		one.move(owner(one.slot))
	}
}
