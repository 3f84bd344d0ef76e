package several

import "github.com/noonlock/noonlock/internal/wire"

// A Count makes one answer of those of several servers. answers has those that arrived, by
// server; servers that have not answered are missing. If more answers are needed, decided is
// false. It is called again after each answer, and decides when none is pending.
type Count func(answers map[int]wire.Answer, n int) (one wire.Answer, decided bool)

// A task is what this package attaches to a request.
type task struct {
	count Count         // nil: the request is for one server
	trail *Trail        // of its attempt; nil: none
	late  *wire.Request // of Leaving; nil: the request does not end its attempt
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

// Leaving returns a Counted request as one that ends its attempt. A server gets late instead if an earlier
// request of the attempt was not answered there, and may still arrive.
func Leaving(r, late wire.Request) wire.Request {
	t := taskOf(r)
	late.Attached = &task{count: t.count}
	t.late = &late
	r.Attached = &t
	return r
}
