package lock

import (
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A history tells whether a server may have lost data lately. A Client with Config.LockDelay has one for each server,
// and then delays grants. lock_history.lua defines a history.
//
// Each connection for requests checks the history before its first request. A restart and a failover end all
// connections to the old server, so no request is sent to the new server before a check.
type history struct {
	c    *Client
	addr string
	tag  func() (string, bool) // hash tag of a slot at the server; false if it serves no slot

	mu     sync.Mutex
	seen   string        // identifier of the newest history, empty before the first
	offset int64         // greatest replication offset in the history
	until  time.Duration // end of the delay
}

func (c *Client) history(server string, tag func() (string, bool)) wire.History {
	return &history{c: c, addr: server, tag: tag}
}

// reasons has, by the last number in the answer of lock_history, why grants are delayed.
var reasons = []string{
	"another client has seen a new history",
	"there is no record of the server's history",
	"the server was restarted or promoted",
	"the server has lost its latest writes",
}

// Check asks the server about its history. package wire calls it for each new connection, with a function that sends.
func (h *history) Check(ask func(wire.Request) (any, error)) error {
	tag, ok := h.tag()
	if !ok {
		return errors.New("lockcore: the node serves no slot")
	}
	h.mu.Lock()
	r := h.c.scripts.history.Call(wire.Keys(h.c.keys.history(tag)), h.seen, h.offset)
	h.mu.Unlock()
	answer, err := ask(r)
	if wire.HasCode(err, "ASK", "TRYAGAIN") {
		// The slot of the record is moving. An error would refuse the connection, but renewals and releases need it.
		h.delay("the record of the server's history is moving to another node", h.c.lockDelay)
		return nil
	}
	if err != nil {
		return err
	}
	list, _ := answer.([]any)
	if len(list) == 0 {
		return wire.ErrNoHistory
	}
	if len(list) != 4 {
		return r.OddReply(answer)
	}
	age, ok1 := list[1].(int64)
	offset, ok2 := list[2].(int64)
	reason, ok3 := list[3].(int64)
	if !ok1 || !ok2 || !ok3 || reason < 0 || reason >= int64(len(reasons)) {
		return r.OddReply(answer)
	}
	h.see(wire.Text(list[0]), offset, max(0, time.Duration(age)*time.Millisecond), reasons[reason])
	return nil
}

// see records the history of the server, which began an age ago. For a history that was seen before, the
// delay stays as it is, even if the server's clock was set meanwhile.
func (h *history) see(id string, offset int64, age time.Duration, reason string) {
	h.mu.Lock()
	same := h.seen == id
	if !same {
		h.seen, h.offset = id, 0
	}
	h.offset = max(h.offset, offset)
	h.mu.Unlock()
	if !same && age < h.c.lockDelay {
		h.delay(reason, h.c.lockDelay-age)
	}
}

// delay begins or extends the delay.
func (h *history) delay(reason string, left time.Duration) {
	h.mu.Lock()
	h.until = max(h.until, h.c.clock.Ticks()+left)
	h.mu.Unlock()
	h.c.metrics.delays.Inc()
	h.c.log.Info("grants delayed, because the server may have lost data", "server", h.addr, "delay", left.String(), "reason", reason)
}

// Refusal returns a *wire.DelayError during a delay, and otherwise nil.
func (h *history) Refusal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.until - h.c.clock.Ticks(); left > 0 {
		return &wire.DelayError{Delay: h.c.lockDelay, Left: left}
	}
	return nil
}
