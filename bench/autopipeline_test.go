package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// autoPipeline sends the two scripts of a Mutex through go-redis's autopipeline, in full duplex. It is what a
// connection costs without leases: nobody checks the replies, renews, or withdraws a request.
func autoPipeline(addr string, opt options) (*client, error) {
	var seen recorder
	recorded := redis.NewClient(&redis.Options{Addr: addr, Dialer: seen.dial})
	c, err := lockcore.New(recorded, lockcore.Config{})
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: opt.connections, AutoPipelineOptions: &redis.AutoPipelineOptions{
		FullDuplex: true, MaxBatchSize: 300, MaxBatchBytes: 128 << 10, MaxConcurrentBatches: 1,
	}})
	pipeline, err := rdb.AutoPipeline()
	return &client{
		lock: func(ctx context.Context, name string) hold {
			commands, failed := seen.cycle(ctx, c, name, opt)
			send := func(i int) step {
				return func(ctx context.Context) error {
					if failed != nil {
						return failed
					}
					return pipeline.Do(ctx, commands[i]...).Err()
				}
			}
			return between(send(0), send(1))
		},
		close: func() { _, _, _ = c.Close(context.Background()), recorded.Close(), rdb.Close() },
	}, err
}

// A recorder keeps what is written on connections.
type recorder struct {
	mu   sync.Mutex
	sent bytes.Buffer
}

type recordedConn struct {
	net.Conn
	r *recorder
}

func (r *recorder) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return recordedConn{conn, r}, err
}

func (c recordedConn) Write(b []byte) (int, error) {
	c.r.mu.Lock()
	c.r.sent.Write(b)
	c.r.mu.Unlock()
	return c.Conn.Write(b)
}

// cycle returns the commands that lock and unlock a name.
func (r *recorder) cycle(ctx context.Context, c *lockcore.Client, name string, opt options) (commands [][]any, err error) {
	acquire, release := mutex(c, name, opt)
	for range 2 { // the first one brings the scripts
		r.mu.Lock()
		r.sent.Reset()
		r.mu.Unlock()
		if err := errors.Join(acquire(ctx), release(ctx)); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for in := bufio.NewReader(&r.sent); ; {
		command, err := readCommand(in)
		switch {
		case errors.Is(err, io.EOF) && len(commands) == 2:
			return commands, nil
		case err != nil:
			return nil, errors.Join(errors.New("the commands of a cycle are unknown"), err)
		case command[0] == "evalsha":
			commands = append(commands, command)
		}
	}
}

func readCommand(in *bufio.Reader) (command []any, err error) {
	number := func() (n int) {
		line, failed := in.ReadString('\n')
		if err = failed; err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for n := number(); n > 0 && err == nil; n-- {
		text := make([]byte, number()+2)
		if err == nil {
			_, err = io.ReadFull(in, text)
		}
		command = append(command, string(text[:len(text)-2]))
	}
	return command, err
}
