package wire

import (
	"sync/atomic"
	"time"
)

// A trust is shared by the connections of one purpose. If a request on one of them is not
// answered, the others may be dead, too, for example because the address has moved to
// another machine. They are replaced before their next use, instead of failing in turn.
type trust struct {
	began       time.Time
	suspectedAt atomic.Int64 // connections without an answer since then are not used again
}

func (t *trust) now() time.Duration { return time.Since(t.began) }

// suspect records that a request which was sent at that time was not answered.
func (t *trust) suspect(sent time.Duration) {
	for {
		old := t.suspectedAt.Load()
		if int64(sent) <= old || t.suspectedAt.CompareAndSwap(old, int64(sent)) {
			return
		}
	}
}
