package wire

import (
	"sync/atomic"
	"time"
)

// A trust is shared by the connections of one purpose. If a request on one of them is not
// answered, the others may be dead, too, for example because the address has moved to
// another machine. They are replaced before their next use, instead of failing in turn.
// The same is done if one of them leads to a server that is no longer the primary: on the
// others, this server would answer reads with old data.
type trust struct {
	began       time.Time
	suspectedAt atomic.Int64 // connections without an answer since then are not used again
}

func (t *trust) now() time.Duration { return time.Since(t.began) }

// suspect makes each connection without an answer since that time be replaced.
func (t *trust) suspect(sent time.Duration) {
	for {
		old := t.suspectedAt.Load()
		if int64(sent) <= old || t.suspectedAt.CompareAndSwap(old, int64(sent)) {
			return
		}
	}
}
