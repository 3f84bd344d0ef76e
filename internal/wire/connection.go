package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A connection is one to the server that is made when it is needed, and anew when
// it has failed. It is used by one request, or one subscription, at a time. A request
// ends when its context does, whatever the network, the server and the user's Dialer
// do: go-redis looks at no context while it reads, so the connection is closed then.
//
// A connection is dialed and set up beside the request that needs it, which may have
// little time. What comes too late for it serves the next one.
type connection struct {
	opt   redis.Options
	dials *dialer
	trust *trust

	failed bool // the last request found no connection; its user writes it

	mu      sync.Mutex
	rdb     *redis.Client
	closed  bool
	ready   bool          // rdb has a connection that is set up
	proved  time.Duration // when the server last answered here
	setting int           // setups under way
	changed chan struct{} // closed when one of them ends
}

// trust is shared by connections that are used for the same: where a request was sent and
// not answered, the others may be as dead, as when an address has moved to another
// machine. They are made anew instead of being tried in turn.
type trust struct {
	began   time.Time
	doubted atomic.Int64 // connections that have not answered since are not used again
}

func (t *trust) now() time.Duration { return time.Since(t.began) }

// doubt notes that a request that was sent then was not answered.
func (t *trust) doubt(sent time.Duration) {
	for {
		old := t.doubted.Load()
		if int64(sent) <= old || t.doubted.CompareAndSwap(old, int64(sent)) {
			return
		}
	}
}

// newConnections makes connections that are used for the same.
func newConnections(n int, opt redis.Options) []*connection {
	t := &trust{began: time.Now()}
	all := make([]*connection, n)
	for i := range all {
		all[i] = newConnection(opt, t)
	}
	return all
}

func newConnection(opt redis.Options, t *trust) *connection {
	l := &connection{trust: t, changed: make(chan struct{})}
	l.dials = &dialer{dial: opt.Dialer, within: opt.DialTimeout, secure: opt.TLSConfig != nil, done: make(chan struct{})}
	opt.Dialer = l.dials.take
	guardSetup(&opt, l.dials.done)
	l.opt = opt
	l.rdb = l.client()
	return l
}

// client makes what has one connection.
func (l *connection) client() *redis.Client {
	opt := l.opt
	rdb := redis.NewClient(&opt)
	rdb.AddHook(greeting{authenticates: opt.OnConnect != nil})
	return rdb
}

// do sends commands in one round trip and waits for their answers until ctx, which has
// a deadline, ends. What is no longer wanted when there is a connection is not sent.
func (l *connection) do(ctx context.Context, commands [][]any, wanted func(i int) bool) []Answer {
	rdb, err := l.connected(ctx)
	replies := make([]Answer, len(commands))
	if err != nil {
		l.failed = true
		for i := range replies {
			replies[i].Err = &unsentError{err}
		}
		return replies
	}
	if wanted == nil {
		return l.exchange(ctx, rdb, commands)
	}
	sent, at := make([][]any, 0, len(commands)), make([]int, 0, len(commands))
	for i, args := range commands {
		if wanted(i) {
			sent, at = append(sent, args), append(at, i)
		} else {
			replies[i].Err = &unsentError{errDropped}
		}
	}
	if len(sent) > 0 {
		for i, r := range l.exchange(ctx, rdb, sent) {
			replies[at[i]] = r
		}
	}
	return replies
}

var errDropped = errors.New("the caller has dropped the call")

// exchange sends commands on a connection that is set up.
func (l *connection) exchange(ctx context.Context, rdb *redis.Client, commands [][]any) []Answer {
	over := false // guarded by mu: the next request on this connection must not be hit
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		hit := !over
		l.mu.Unlock()
		if hit {
			l.renew()
		}
	})
	sent := l.trust.now()
	replies := transmit(ctx, rdb, commands)
	stop()
	l.mu.Lock()
	over = true
	l.mu.Unlock()
	l.judge(sent, replies)
	return replies
}

// connected waits until the connection is set up, for the request of ctx.
func (l *connection) connected(ctx context.Context) (*redis.Client, error) {
	l.mu.Lock()
	doubted := l.ready && l.proved < time.Duration(l.trust.doubted.Load())
	l.mu.Unlock()
	if doubted {
		l.renew()
	}
	var own chan error
	for {
		l.mu.Lock()
		if l.ready || l.closed {
			defer l.mu.Unlock()
			return l.rdb, nil
		}
		if own == nil && l.setting < maxDialing {
			own = make(chan error, 1)
			l.setting++
			go l.setUp(l.rdb, own) //nolint:contextcheck // the connection outlives the request that began it
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case err := <-own:
			l.mu.Lock()
			ready := l.ready
			l.mu.Unlock()
			if err != nil && !ready {
				return nil, err
			}
			own = nil // what it made may have been closed since
		case <-changed:
		case <-ctx.Done():
			err := context.Cause(ctx)
			if own == nil {
				err = errors.Join(err, errDialsHang)
			}
			return nil, err
		}
	}
}

// setUp makes a connection ready, and says why it could not.
func (l *connection) setUp(rdb *redis.Client, result chan<- error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.opt.DialTimeout)
	defer cancel()
	err := l.dialAndSetUp(ctx, rdb)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setting--
	if err == nil && l.rdb == rdb && !l.closed {
		l.ready, l.proved = true, l.trust.now()
	}
	result <- err
	close(l.changed)
	l.changed = make(chan struct{})
}

// dialAndSetUp dials before go-redis does, which writes a line to standard error for each
// dial that fails: thousands of them in an outage.
func (l *connection) dialAndSetUp(ctx context.Context, rdb *redis.Client) error {
	conn, err := l.dials.connect(ctx, l.opt.Network, l.opt.Addr)
	if err != nil {
		return err
	}
	defer l.dials.offer(conn)() // it is not taken if rdb was closed meanwhile
	err = plainRefusal(rdb.Process(ctx, redis.NewCmd(ctx, nothing{})))
	if IsRefused(err) && err.Error() == errNothing.text {
		return nil
	}
	return err
}

// nothing is a command that is never sent: go-redis has a connection dialed and set up
// for it, and is refused its text. An error of Redis's kind costs no connection.
type nothing struct{}

var errNothing = &refusal{"wire: nothing to send"}

func (nothing) MarshalBinary() ([]byte, error) { return nil, errNothing }

// judge draws from the answers what the connection is worth.
func (l *connection) judge(sent time.Duration, replies []Answer) {
	l.failed = false
	for _, r := range replies {
		switch {
		case r.Err == nil:
			l.note(true)
		case IsUnsent(r.Err):
			l.failed = true
			l.note(false)
			return
		case IsRefused(r.Err):
			l.note(true)
			if isReplica(r.Err) {
				l.renew() // the server is a replica now, and the name may lead to its master
				return
			}
		default:
			var late *noAnswerError
			if l.failed = !errors.As(r.Err, &late); !l.failed {
				l.trust.doubt(sent)
			}
			l.note(false) // go-redis has closed it
			return
		}
	}
}

// note notes whether the connection has just proved itself, or is gone.
func (l *connection) note(answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		l.proved = l.trust.now()
	} else {
		l.ready = false
	}
}

// renew closes the connection; the next request makes another.
func (l *connection) renew() {
	l.mu.Lock()
	old := l.rdb
	if !l.closed {
		l.rdb, l.ready = l.client(), false
	}
	l.mu.Unlock()
	_ = old.Close()
}

// close ends what is under way, for good.
func (l *connection) close() {
	l.mu.Lock()
	l.closed = true
	rdb := l.rdb
	l.mu.Unlock()
	l.dials.close()
	_ = rdb.Close()
}

// A mark is the name of a command that knows whether it was written. go-redis asks it for its
// bytes when it writes a command to a connection that is dialed and set up: what fails
// before that was surely not applied.
type mark struct {
	text    string
	written bool
}

func (m *mark) MarshalBinary() ([]byte, error) {
	m.written = true
	return []byte(m.text), nil
}

func (m *mark) String() string { return m.text }

// transmit sends commands in one round trip.
func transmit(ctx context.Context, rdb *redis.Client, commands [][]any) []Answer {
	replies := make([]Answer, len(commands))
	marks := make([]mark, len(commands))
	cmds := make([]*redis.Cmd, len(commands))
	for i, args := range commands {
		marks[i].text = Text(args[0])
		marked := append([]any(nil), args...)
		marked[0] = &marks[i]
		cmds[i] = redis.NewCmd(ctx, marked...)
	}
	var err error
	if len(cmds) == 1 {
		err = rdb.Process(ctx, cmds[0])
	} else {
		pipe := rdb.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err = pipe.Exec(ctx)
	}
	for i, cmd := range cmds {
		replies[i] = readReply(ctx, cmd, marks[i].written, err)
	}
	return replies
}

// readReply tells the answer of one command of a batch whose error was whole.
func readReply(ctx context.Context, cmd *redis.Cmd, written bool, whole error) Answer {
	value, err := cmd.Result()
	switch {
	case written && errors.Is(err, redis.Nil), written && err == nil && value != nil:
		return Answer{Value: value}
	case err == nil:
		// go-redis leaves a batch without errors of its own when setting up the
		// connection was refused.
		if err = whole; err == nil {
			err = errors.New("the server answered nothing")
		}
	}
	err = plainRefusal(err)
	if !IsRefused(err) {
		var timeout net.Error
		if at, ok := ctx.Deadline(); ok && errors.As(err, &timeout) && timeout.Timeout() && !time.Now().Before(at) {
			<-ctx.Done() // the deadline of the connection is the context's, and comes a moment earlier
		}
		var own *noAnswerError
		if cause := context.Cause(ctx); errors.As(cause, &own) {
			err = cause // the caller's context is not over, as context.DeadlineExceeded would say
		}
	}
	switch {
	case !written:
		return Answer{Err: &unsentError{err}}
	case IsRefused(err):
		return Answer{Err: err}
	default:
		return Answer{Err: errors.Join(ErrUnknown, err)}
	}
}
