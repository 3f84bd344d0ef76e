package wire

import (
	"bufio"
	"cmp"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link is a network connection that is set up.
type link struct {
	conn   net.Conn
	reader *bufio.Reader
	addr   string    // where it leads to
	until  time.Time // the end of the user's ConnMaxLifetime; zero: none
	idle   time.Duration

	outdated atomic.Bool // its user has other credentials by now

	mu     sync.Mutex
	end    func() error // ends the watch of the credentials; nil: there is none
	closed bool

	// Only the user of the connection uses these.
	checked, used time.Duration // when, by trust.now
	out           []byte        // the commands of the last exchange
	next          uint64        // the id of the next request; 0: there was none
}

// readSize is enough for a batch of most answers.
const readSize = 4 << 10

func newLink(conn net.Conn, opt *redis.Options) *link {
	l := &link{conn: conn, reader: bufio.NewReaderSize(conn, readSize), addr: remoteAddr(conn), idle: opt.ConnMaxIdleTime}
	if life := opt.ConnMaxLifetime; life > 0 {
		if jitter := int64(min(opt.ConnMaxLifetimeJitter, life)); jitter > 0 {
			life += time.Duration(rand.Int64N(2*jitter) - jitter)
		}
		l.until = time.Now().Add(life)
	}
	return l
}

// close closes the network connection. It does not wait for a read in progress.
func (l *link) close() {
	l.mu.Lock()
	closed, end := l.closed, l.end
	l.closed, l.end = true, nil
	l.mu.Unlock()
	if end != nil {
		go func() { _ = end() }() // nobody waits: it is the user's
	}
	if !closed {
		_ = l.conn.Close()
	}
}

// A connection is checked before it is used if it was idle, or after a while: the server may have closed
// it, and the user's ConnMaxIdleTime and ConnMaxLifetime may be over. The check costs as much as a small
// part of a round trip, so it is not made between requests that follow each other.
const (
	checkIdle = time.Millisecond
	checkBusy = time.Second
)

// fresh reports whether the connection can be used. If not, another one must be made.
func (l *link) fresh(now time.Duration) bool {
	if now-l.used < checkIdle && now-l.checked < checkBusy {
		return true
	}
	l.checked = now
	return (l.idle <= 0 || now-l.used < l.idle) && (l.until.IsZero() || time.Now().Before(l.until)) && l.reader.Buffered() == 0 && isQuiet(l.conn)
}

// setUp sends the requests of a setup in one round trip.
func (l *link) setUp(commands [][]any) ([]Answer, error) {
	var out []byte
	for _, c := range commands {
		out = appendCommand(out, c)
	}
	_, _ = l.conn.Write(out) // if it fails, the server may have said why: the read says it, or fails, too
	answers := make([]Answer, len(commands))
	for i := range answers {
		value, err := readReply(l.reader)
		if refused, ok := errors.AsType[*refusal](err); ok {
			answers[i].Err = plainRefusal(refused)
		} else if err != nil {
			return nil, err
		}
		answers[i].Value = value
	}
	return answers, nil
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
	conn, reader := l.conn, l.reader
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
