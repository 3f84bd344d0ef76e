package several

import "github.com/noonlock/noonlock/internal/wire"

// A Count makes one answer of the answers of n servers, which it gets by server. It is called after each answer.
// decided is false if more answers are needed, and true when none is pending.
type Count func(answers map[int]wire.Answer, n int) (answer wire.Answer, decided bool)

// A task is the data that this package attaches to a request.
type task struct {
	count Count         // nil for a request to one server
	trail *Trail        // requests of the same attempt; optional
	late  *wire.Request // argument of Leaving; nil in other requests
}

func taskOf(r wire.Request) task {
	if t, ok := r.Attached.(*task); ok {
		return *t
	}
	return task{}
}

// Counted returns a request for several servers. trail is optional. A Stamp gets the time of the first server.
func Counted(r wire.Request, count Count, trail *Trail) wire.Request {
	r.KeepStamp, r.Attached = true, &task{count: count, trail: trail}
	return r
}

// Leaving returns a Counted request that ends its attempt. A server gets late in its place if an earlier request of the
// attempt was not answered there and may still arrive.
func Leaving(r, late wire.Request) wire.Request {
	t := taskOf(r)
	late.Attached = &task{count: t.count}
	t.late = &late
	r.Attached = &t
	return r
}
