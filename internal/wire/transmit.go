package wire

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link is the network connection that the pool of a go-redis client has. go-redis has set it up, and
// then leaves it alone: a connection sends its requests on it directly. go-redis makes another one if
// check finds that it was closed or is too old.
type link struct {
	mu     sync.Mutex
	conn   net.Conn      // nil: none was made
	reader *bufio.Reader // of conn; nil before the first request
	addr   string        // where it leads to
	closed bool

	outdated atomic.Bool // its user has other credentials by now

	// Only the user of the connection uses these.
	checked, used time.Duration // when, by trust.now
	out           []byte        // the commands of the last exchange
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
	return l.unlimit()
}

// unlimit removes the deadlines that go-redis has set. The timer of a deadline closes the connection
// instead: a connection of the user may ignore deadlines.
func (l *link) unlimit() error {
	conn, _ := l.open()
	return conn.SetDeadline(time.Time{})
}

// transmit sends commands in one round trip.
func (c *connection) transmit(d *deadline, l *link, commands []Request) []Answer {
	replies := make([]Answer, len(commands))
	conn, reader := l.open()
	l.out = l.out[:0]
	for _, r := range commands {
		l.out = appendCommand(l.out, r.args)
	}
	n, err := conn.Write(l.out)
	if cap(l.out) > keptBuffer {
		l.out = nil
	}
	if n == 0 && errors.Is(err, net.ErrClosed) { // before it
		return unsent(len(commands), d.reason(err))
	}
	for i := range commands {
		if err == nil {
			replies[i].Value, err = readReply(reader)
		}
		if err == nil {
			continue
		}
		if refused, ok := err.(*refusal); ok { //nolint:errorlint // the codec does not wrap it
			replies[i].Err, err = plainRefusal(refused), nil
			continue
		}
		replies[i].Err = errors.Join(ErrUnknown, d.reason(err))
	}
	return replies
}

// reason returns why an exchange failed: the end of d, or otherwise err.
func (d *deadline) reason(err error) error {
	if cause := d.why(); cause != nil {
		return cause
	}
	return err
}
