package conn

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options configure a Line. A Dialer uses Redis, Where, Check and Ready only.
type Options struct {
	Redis redis.Options // options of a redis.Client

	// Where returns the addresses to try, in their order. Without it, Redis.Addr is used, and a connection has the
	// address of the remote end.
	Where func(ctx context.Context) ([]string, error)

	// Check judges the reply to HELLO. Ready is the last step of a setup and sends commands with ask. Both are
	// optional.
	Check func(hello map[string]any) error
	Ready func(ask func(...Command) ([]Answer, error)) error

	Replicas int                  // acknowledgments that a command with ReplicaTimeout needs
	Began    time.Time            // origin of Now; by default the time of construction
	Clock    func() time.Duration // clock of stamps; by default Now
	Refusal  func() error         // optional; while it returns an error, no command with Grants is sent

	Failed   func(sent time.Duration, err error) // optional, called with each error of a sent command
	Replaced func()                              // optional, called for each connection after the first
}

// Now is the clock of a Line.
func (o *Options) Now() time.Duration { return time.Since(o.Began) }

// A Conn is a connection to a server. It sends the commands of one goroutine at a time. A Line shares it among callers.
type Conn struct {
	Addr string // address of the server

	conn      net.Conn
	reader    *reader
	next      uint64        // id of the next command
	roundTrip time.Duration // round trip of the last Ask
	outdated  atomic.Bool   // the credentials have changed

	mu      sync.Mutex
	unwatch func() error // optional; ends the watch of the credentials
}

func newConn(conn net.Conn) *Conn {
	c := &Conn{conn: conn, reader: newReader(conn), next: rand.Uint64() >> 16}
	if addr := conn.RemoteAddr(); addr != nil { // the connection may be the user's
		c.Addr = addr.String()
	}
	return c
}

// Ask sends commands in one round trip. If it fails, it returns the answers that it has read. Bytes after the last
// reply are an error.
func (c *Conn) Ask(commands ...Command) ([]Answer, error) {
	var out []byte
	first := c.next
	for _, command := range commands {
		out = c.append(out, command)
	}
	began := time.Now()
	_, _ = c.conn.Write(out) // after a failed write, the read fails, too, and may return the server's reason
	answers := make([]Answer, len(commands))
	for i, command := range commands {
		a, err := readAnswer(c.reader, command.Named, first+uint64(i))
		if err != nil {
			return answers[:i], err
		}
		answers[i] = a
	}
	if c.reader.Buffered() > 0 {
		return answers, errWrongReply
	}
	c.roundTrip = time.Since(began)
	return answers, nil
}

// Send writes commands whose replies Read returns.
func (c *Conn) Send(commands ...[]any) error {
	var out []byte
	for _, args := range commands {
		out = appendCommand(out, args)
	}
	_, err := c.conn.Write(out)
	return err
}

// Read returns the next reply or message. After an error that is a *Refusal, the connection is still usable.
func (c *Conn) Read() (any, error) {
	if _, err := c.reader.Peek(1); err != nil {
		return nil, err
	}
	c.reader.left = maxReply
	return readValue(c.reader, 0)
}

// append encodes a command and gives it the next id. A named command has the id as its last argument.
func (c *Conn) append(b []byte, command Command) []byte {
	id := c.next
	c.next++
	if !command.Named {
		return appendCommand(b, command.Args)
	}
	return appendInt(appendArgs(appendHeader(b, '*', len(command.Args)+1), command.Args), int64(id))
}

// Drop closes the connection in the background, because Close and unwatch may be the user's and may block.
func (c *Conn) Drop() {
	c.mu.Lock()
	unwatch := c.unwatch
	c.unwatch = nil
	c.mu.Unlock()
	go func() {
		_ = c.conn.Close()
		if unwatch != nil {
			defer func() { _ = recover() }()
			_ = unwatch()
		}
	}()
}
