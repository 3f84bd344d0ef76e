package several

import (
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A Count makes one answer of those of several servers. answers has those that arrived, by
// server; servers that have not answered are missing. If more answers are needed, decided is
// false. It is called again after each answer, and decides when none is pending.
type Count func(answers map[int]wire.Answer, n int) (one wire.Answer, decided bool)

// A task is what this package attaches to a request.
type task struct {
	count Count  // nil: the request is for one server
	trail *Trail // of its attempt; nil: none
	end   *end   // the request ends its attempt; nil: it does not
}

// An end is what Leaving adds.
type end struct {
	late        wire.Request
	again, each time.Duration
}

// taskOf returns the task of a request, an empty one if it has none.
func taskOf(r wire.Request) task {
	if t, ok := r.Attached.(*task); ok {
		return *t
	}
	return task{}
}

// Counted returns a request for several servers. trail is that of its attempt; nil: none. If the request
// is Stamped, the Stamp is that of the first server.
func Counted(r wire.Request, count Count, trail *Trail) wire.Request {
	r.First, r.Attached = true, &task{count: count, trail: trail}
	return r
}

// Leaving returns a Counted request as one that ends its attempt. At a server with an earlier request of the
// attempt that was not answered, and may still arrive, late is sent instead. If a server does
// not answer, late is sent again, in the background, for so long. Each of these tries has the time
// each, as the timeout of Send may be the little that was left to its caller.
func Leaving(r, late wire.Request, again, each time.Duration) wire.Request {
	t := taskOf(r)
	t.end = &end{again: again, each: each}
	late.Attached, r.Attached = &t, &t
	t.end.late = late
	return r
}
