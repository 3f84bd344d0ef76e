package wire

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The server closes an idle connection and is away. The next request finds that before it is sent, and
// the connection counts as not set up.
//
// Mutant: the connection stays.
func TestClosedIdleConnectionIsDropped(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted, ended := make(chan net.Conn, 1), make(chan struct{})
	go func() { // it knows no HELLO
		defer close(ended)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		accepted <- conn
		for r := bufio.NewReader(conn); ; {
			if _, err := readReply(r); err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
		}
	}()
	opt := ownOptions(*redis.NewClient(&redis.Options{Addr: listener.Addr().String()}).Options())
	c := newConnection(opt, &trust{began: time.Now()}, primary, nil)
	defer c.close()
	ping := func() error {
		d := c.limit(t.Context(), time.Second)
		defer d.stop()
		return c.do(d, []Request{Command("ping")}, nil)[0].Err
	}
	if err := ping(); !IsRefused(err) || !c.isSetUp() {
		t.Fatalf("PING: %v, set up: %v", err, c.isSetUp())
	}
	_ = (<-accepted).Close()
	<-ended // a connection stays open while it is read
	_ = listener.Close()
	c.link.used -= time.Second // as after a while
	for range 2 {
		if err := ping(); OutcomeOf(err) != Unsent || c.isSetUp() {
			t.Errorf("PING: %v, set up: %v", err, c.isSetUp())
		}
	}
}
