package wire

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A Delay configures for how long a server grants no lease after it may have lost data.
type Delay struct {
	For time.Duration

	// Check returns the request that reads the history of a server's data. tag is a name
	// that the server has, "" if it has all. known is the history that was seen last, and
	// reached the greatest replication offset in it.
	Check func(tag, known string, reached int64) Request

	// Began is called when a delay begins, or is already in progress on a new connection.
	Began func(server string, left time.Duration, reason string)
}

// DelayError says that a request that may grant a lease was not sent, because the server may
// have lost data a short time ago.
type DelayError struct {
	Delay time.Duration // Config.LockDelay
	Left  time.Duration // until the server grants leases again
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("lockcore: Config.LockDelay %s: nothing is granted for another %s, because the server may have lost data", e.Delay, e.Left)
}

// A history is what is known about the data of a server.
//
// Each connection for requests checks it when it is set up, before its first request. A
// restart and a failover end all connections to the old server, so no request is sent to
// the new one before a check.
type history struct {
	Delay
	addr string
	tag  func() (string, bool)
	now  func() time.Duration

	mu      sync.Mutex
	known   string
	reached int64
	until   time.Duration // the end of the delay
}

// reasons are the last values of the answer to Delay.Check.
var reasons = []string{
	"another client has seen a new history",
	"there is no record of the server's history",
	"the server was restarted or promoted",
	"the server has lost its latest writes",
}

var (
	errNoHistory = errors.New("lockcore: Config.LockDelay needs a server that reports its run id and its replication id (INFO)")
	errNoTag     = errors.New("lockcore: the node serves no slot")
)

// check reads the history on a connection that is being set up.
func (h *history) check(p *pipe) error {
	tag, ok := h.tag()
	if !ok {
		return errNoTag
	}
	h.mu.Lock()
	r := h.Check(tag, h.known, h.reached)
	h.mu.Unlock()
	answers, err := p.exchange(r.WithSource())
	if err != nil {
		return err
	}
	answer, err := answers[0].Value, answers[0].Err
	if HasCode(err, "ASK", "TRYAGAIN") {
		// The slot of the record is moving. The connection is needed, for renewals and releases.
		h.delay("the record of the server's history is moving to another node", h.For)
		return nil
	}
	if err != nil {
		return err
	}
	list, _ := answer.([]any)
	if len(list) == 0 {
		return errNoHistory
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
	h.see(Text(list[0]), offset, max(0, time.Duration(age)*time.Millisecond), reasons[reason])
	return nil
}

// see records a history that is known on the server since age. If it was seen before, its
// delay stays as it is, even if the server's clock was set meanwhile.
func (h *history) see(known string, offset int64, age time.Duration, reason string) {
	h.mu.Lock()
	same := h.known == known
	if !same {
		h.known, h.reached = known, 0
	}
	h.reached = max(h.reached, offset)
	h.mu.Unlock()
	if !same && age < h.For {
		h.delay(reason, h.For-age)
	}
}

// delay begins or extends the delay.
func (h *history) delay(reason string, left time.Duration) {
	h.mu.Lock()
	h.until = max(h.until, h.now()+left)
	h.mu.Unlock()
	h.Began(h.addr, left, reason)
}

// refusal returns why nothing may be granted now, or nil. h may be nil.
func (h *history) refusal() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.until - h.now(); left > 0 {
		return &DelayError{Delay: h.For, Left: left}
	}
	return nil
}

// tagOf returns a name of a slot, the same in each process.
func tagOf(slot int) string {
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slotOf(tag) == slot {
			return tag
		}
	}
}
