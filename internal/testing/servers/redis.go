package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a redis-server that belongs to one test. Its methods are safe for
// concurrent use.
type RedisServer struct {
	*process
}

// Redis starts a redis-server and returns when it is ready. Each of opts is a line of redis.conf, such as "appendonly
// yes". opts must not contain "bind", "port", "tls-port", "dir" or "daemonize". With "tls-cert-file" the server also
// speaks TLS, at SecureAddr. By default the server stores nothing on disk. The program is redis-server in PATH, or the
// one in the environment variable NOONLOCK_REDIS_SERVER.
//
// With "appendonly yes" and "appendfsync always" every acknowledged write survives a
// restart, even after Kill.
func Redis(tb testing.TB, opts ...string) *RedisServer {
	tb.Helper()
	s := startRedis(tb, "redis-server", slices.Concat(storesNothing, opts))
	s.endWith(tb)
	return s
}

// storesNothing are the first lines of redis.conf.
var storesNothing = []string{`save ""`, "appendonly no"}

// startRedis starts redis-server. conf are lines of redis.conf, and args are arguments after that file. The server ends
// with the test process, or with the test if endWith is called.
func startRedis(tb testing.TB, name string, conf []string, args ...string) *RedisServer {
	tb.Helper()
	program := cmp.Or(os.Getenv("NOONLOCK_REDIS_SERVER"), find(nil, "redis-server"))
	if program == "" {
		missing(tb, "redis-server", "redis-server")
	}
	s := &RedisServer{&process{name: name, deathSignal: syscall.SIGKILL}}
	s.ready = s.answers
	secure := slices.ContainsFunc(conf, func(line string) bool { return strings.HasPrefix(line, "tls-cert-file ") })
	must(tb, s.begin(memory(), func() error {
		file := filepath.Join(s.dir, "redis.conf")
		// The ports are arguments after the file, since it is made before they are known.
		s.argv = func(port int) []string {
			argv := []string{program, file, "--dir", s.dir, "--port", strconv.Itoa(port)}
			if secure {
				argv = append(argv, "--tls-port", strconv.Itoa(port+1))
			}
			return append(argv, args...)
		}
		lines := append([]string{"bind 127.0.0.1", "daemonize no"}, conf...)
		return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	}))
	return s
}

// Sentinel starts a Sentinel that watches the primary at an address under a name. The program is redis-server. opts are
// further lines of sentinel.conf. Sentinel returns when the Sentinel is ready. For a minute, the Sentinel starts no
// failover by itself: on a busy machine, it would take the primary for dead.
func Sentinel(tb testing.TB, name, primary string, quorum int, opts ...string) *RedisServer {
	tb.Helper()
	s := startSentinel(tb, name, primary, quorum, opts...)
	s.endWith(tb)
	return s
}

func startSentinel(tb testing.TB, name, primary string, quorum int, opts ...string) *RedisServer {
	tb.Helper()
	host, port, err := net.SplitHostPort(primary)
	must(tb, err)
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s %d", name, host, port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s 60000", name),
	}
	return startRedis(tb, "redis-sentinel", slices.Concat(lines, opts), "--sentinel")
}

// ReplicaOf returns the line of redis.conf that makes another server a replica of this one.
func (s *RedisServer) ReplicaOf() string { return fmt.Sprintf("replicaof 127.0.0.1 %d", s.port) }

// Addr returns host:port, the same after a restart.
func (s *RedisServer) Addr() string { return loopback(s.port) }

// Client returns a client with one connection, which sends no command twice.
func (s *RedisServer) Client() *redis.Client { return client(s.Addr()) }

// SecureAddr returns the host:port at which the server speaks TLS.
func (s *RedisServer) SecureAddr() string { return loopback(s.port + 1) }

// answers checks that this server, and no other process, has the port, and that it has loaded its data.
func (s *RedisServer) answers(port int) error {
	conn, err := net.Dial("tcp", loopback(port)) // go-redis logs each dial that fails
	if err != nil {
		return err
	}
	conn.Close()
	rdb := client(loopback(port))
	defer rdb.Close()
	info, err := rdb.Info(context.Background()).Result()
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "NOAUTH"):
		return nil // the options set a password, so INFO is not available
	case err == nil && !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.Pid())):
		return errors.New("the port belongs to another process")
	case strings.Contains(info, "\nloading:1"):
		return errors.New("the server still loads its data")
	}
	return err
}
