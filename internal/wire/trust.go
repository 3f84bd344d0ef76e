package wire

import (
	"sync/atomic"
	"time"
)

// A trust is shared by the connections of one purpose. If a request on one of them is not
// answered, the others may be dead, too, for example because the address has moved to
// another machine. They are replaced before their next use, instead of failing in turn.
// The same is done if one of them leads to a server that is no longer the primary. The others lead
// to it, too, and an answer proves nothing: it would answer reads with old data.
type trust struct {
	began       time.Time
	suspectedAt atomic.Int64 // connections without an answer since then are not used again
	abandonedAt atomic.Int64 // nor are those that were dialed before
}

func (t *trust) now() time.Duration { return time.Since(t.began) }

// suspect makes each connection without an answer since that time be replaced.
func (t *trust) suspect(sent time.Duration) { raise(&t.suspectedAt, sent) }

// abandon makes each connection that was dialed before that time be replaced.
func (t *trust) abandon(now time.Duration) { raise(&t.abandonedAt, now) }

// doubts reports whether a connection that is set up must be replaced before its next use.
func (t *trust) doubts(dialed, proved time.Duration) bool {
	return int64(proved) < t.suspectedAt.Load() || int64(dialed) < t.abandonedAt.Load()
}

func raise(to *atomic.Int64, at time.Duration) {
	for {
		old := to.Load()
		if int64(at) <= old || to.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}
