package wire

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link is the network connection that the pool of a go-redis client has. go-redis has set it up, and
// then leaves it alone: a connection sends its requests on it directly. go-redis makes another one if
// check finds that it was closed or is too old.
type link struct {
	mu       sync.Mutex
	conn     net.Conn      // nil: none was made
	reader   *bufio.Reader // of conn; nil before the first request
	addr     string        // where it leads to
	closed   bool
	unproved bool // OnConnect had it, and may have left a reply

	outdated atomic.Bool // its user has other credentials by now

	// Only the user of the connection uses these.
	checked, used time.Duration // when, by trust.now
	out           []byte        // the commands of the last exchange
	next          uint64        // the id of the next request; 0: there was none
}

// made records the network connection that go-redis gets.
func (l *link) made(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.reader, l.addr = conn, nil, remoteAddr(conn)
	if l.closed {
		_ = conn.Close()
	}
}

// doubt records that the user's OnConnect gets the connection, which may leave a reply on it.
func (l *link) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unproved = true
}

// remoteAddr returns where a connection leads to. The connection may be the user's.
func remoteAddr(conn net.Conn) string {
	if at := conn.RemoteAddr(); at != nil {
		return at.String()
	}
	return ""
}

// differs reports whether a connection was made, and not to that address.
func (l *link) differs(from string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && l.addr != from
}

// readSize is enough for a batch of most answers.
const readSize = 4 << 10

// open returns the network connection and its reader.
func (l *link) open() (net.Conn, *bufio.Reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader == nil && l.conn != nil {
		l.reader = bufio.NewReaderSize(l.conn, readSize)
	}
	return l.conn, l.reader
}

// close closes the network connection, also one that is made later. go-redis would first check it, and wait
// for a read in progress.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

// A connection is checked before it is used if it was idle, or after a while: the server may have closed
// it, and the user's ConnMaxIdleTime and ConnMaxLifetime may be over. The check costs as much as a small
// part of a round trip, so it is not made between requests that follow each other.
const (
	checkIdle = time.Millisecond
	checkBusy = time.Second
)

// fresh reports whether the connection can be used without a check.
func (l *link) fresh(now time.Duration) bool {
	return l.checked > 0 && now-l.used < checkIdle && now-l.checked < checkBusy
}

// check makes go-redis check the connection. go-redis makes another one if it must.
func (l *link) check(ctx context.Context, rdb *redis.Client, now time.Duration) error {
	if err := touch(ctx, rdb); err != nil {
		return err
	}
	l.checked = max(1, now)
	if err := l.unlimit(); err != nil {
		return err
	}
	return l.settle(ctx)
}

// settle checks that the user's OnConnect has left no unread reply, as after a request that timed out. Each
// request would get the reply to the one before. A connection without OnConnect is proved by its first request.
func (l *link) settle(ctx context.Context) error {
	l.mu.Lock()
	unproved := l.unproved
	l.mu.Unlock()
	if !unproved {
		return nil
	}
	unhook := context.AfterFunc(ctx, l.close)
	answer, whole := l.roundTrip(proofs)
	if !unhook() {
		return ctx.Err()
	}
	switch err := answer[0].Err; {
	case err != nil:
		return err
	case !whole:
		return errOtherAnswer
	}
	l.mu.Lock()
	l.unproved = false
	l.mu.Unlock()
	return nil
}

// unlimit removes the deadlines that go-redis has set. The timer of a deadline closes the connection
// instead: a connection of the user may ignore deadlines.
func (l *link) unlimit() error {
	conn, _ := l.open()
	return conn.SetDeadline(time.Time{})
}

// transmit sends commands in one round trip. After a failure, or a reply that belongs to none of them, the
// connection is not used again.
func (c *connection) transmit(d *deadline, l *link, commands []Request) []Answer {
	replies, whole := l.roundTrip(commands)
	if whole && needsProof(commands, replies) {
		var answer []Answer
		if answer, whole = l.roundTrip(proofs); !whole {
			withdrawn := answer[0].Err
			if withdrawn == nil || IsUnsent(withdrawn) {
				withdrawn = errOtherAnswer
			}
			for i, r := range replies {
				if r.Err != nil {
					replies[i].Err = withdrawn
				}
			}
		}
	}
	for i, r := range replies {
		if r.Err == nil || IsRefused(r.Err) {
			continue
		}
		if IsUnsent(r.Err) {
			replies[i].Err = &unsentError{d.reason(errors.Unwrap(r.Err))}
		} else {
			replies[i].Err = errors.Join(ErrUnknown, d.reason(r.Err))
		}
	}
	if !whole {
		c.drop(l)
	}
	return replies
}

// needsProof reports whether the last reply is a refusal, which may be an earlier one that is repeated. The reply
// to the command is still on its way then. After NOSCRIPT the command is sent again, and finds it.
func needsProof(commands []Request, replies []Answer) bool {
	last, refused := commands[len(commands)-1], replies[len(replies)-1].Err
	return last.named && refused != nil && (last.args[0] != "evalsha" || !isNoScript(refused))
}

// roundTrip sends commands and reads their replies. Other errors than a refusal and an unsentError mean that
// the outcome is unknown. whole is false if the connection must not be used any more.
//
// The reply to a script names its request. Other replies do not, and only count if a script that is called after
// them has the right reply, and nothing follows it. If that script is refused, its refusal is their answer. A
// refusal names nothing either. It counts unless a reply is found to be that to another request.
func (l *link) roundTrip(commands []Request) (replies []Answer, whole bool) {
	conn, reader := l.open()
	n := len(commands)
	if slices.ContainsFunc(commands, func(r Request) bool { return !r.named }) {
		commands = append(slices.Clip(commands), proofs...)
	}
	replies = make([]Answer, len(commands))
	if l.next == 0 {
		l.next = rand.Uint64() >> 16
	}
	first := l.next
	l.next += uint64(len(commands))
	l.out = l.out[:0]
	for i, r := range commands {
		if r.named {
			l.out = appendNamed(l.out, r.args, first+uint64(i))
		} else {
			l.out = appendCommand(l.out, r.args)
		}
	}
	written, err := conn.Write(l.out)
	if cap(l.out) > keptBuffer {
		l.out = nil
	}
	if written == 0 && errors.Is(err, net.ErrClosed) { // before it
		return unsent(n, err), false
	}
	for i, r := range commands {
		switch {
		case err != nil:
		case r.named:
			replies[i].Value, err = readNamed(reader, first+uint64(i))
		default:
			replies[i].Value, err = readReply(reader)
		}
		if refused, ok := err.(*refusal); ok { //nolint:errorlint // the codec does not wrap it
			replies[i].Err, err = plainRefusal(refused), nil
		} else if err != nil {
			replies[i].Err = err
		}
	}
	if left, _ := reader.Peek(min(1, reader.Buffered())); err == nil && len(left) > 0 && left[0] != '>' {
		err = errOtherAnswer
	}
	_, odd := err.(*protocolError) //nolint:errorlint // the codec does not wrap it
	for i, r := range commands[:n] {
		switch failed := replies[i].Err != nil; {
		case failed && odd:
			replies[i].Err = err
		case !failed && !r.named:
			if err := cmp.Or(err, replies[n].Err); err != nil {
				replies[i] = Answer{Err: err}
			}
		}
	}
	return replies[:n], err == nil
}

// reason returns why an exchange failed: the end of d, or otherwise err.
func (d *deadline) reason(err error) error {
	if cause := d.why(); cause != nil {
		return cause
	}
	return err
}
