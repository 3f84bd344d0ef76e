package servers

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RedisServer is a redis-server that belongs to one test. Its methods are safe for
// concurrent use.
type RedisServer struct {
	*process
}

// Redis starts a redis-server and returns when it is ready. Each of opts is a line of
// redis.conf, such as "appendonly yes". opts must not contain "bind", "port", "tls-port",
// "dir" or "daemonize". With "tls-cert-file" the server also speaks TLS, at SecureAddr. By default the server stores nothing on disk. The program is redis-server in
// PATH, or the one in the environment variable NOONLOCK_REDIS_SERVER.
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

// startRedis starts redis-server with the lines of a configuration, and arguments after it.
// The server ends with the process of the test, or earlier, after endWith.
func startRedis(tb testing.TB, name string, conf []string, args ...string) *RedisServer {
	tb.Helper()
	program := cmp.Or(os.Getenv("NOONLOCK_REDIS_SERVER"), find(nil, "redis-server"))
	if program == "" {
		missing(tb, "redis-server", "redis-server")
	}
	if _, err := exec.LookPath(program); err != nil {
		tb.Fatalf("NOONLOCK_REDIS_SERVER: %v", err)
	}
	dir, remove, err := folder("redis")
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	p := &process{
		name: name, dir: dir, removeFolder: remove,
		stopSignal: syscall.SIGTERM, deathSignal: syscall.SIGKILL,
	}
	file := filepath.Join(dir, "redis.conf")
	secure := slices.ContainsFunc(conf, func(line string) bool { return strings.HasPrefix(line, "tls-cert-file ") })
	// The ports are arguments after the file, since they differ between tries of launch.
	lines := append([]string{"bind 127.0.0.1", "daemonize no"}, conf...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		remove()
		tb.Fatalf("%s: %v", name, err)
	}
	p.argv = func(port int) []string {
		argv := []string{program, file, "--dir", dir, "--port", strconv.Itoa(port)}
		if secure {
			argv = append(argv, "--tls-port", strconv.Itoa(port+1))
		}
		return append(argv, args...)
	}
	p.ready = func(port int) error { return pingRedis(loopback(port), p.Pid()) }
	if err := p.launch(); err != nil {
		remove()
		tb.Fatalf("starting: %v", err)
	}
	return &RedisServer{process: p}
}

// ReplicaOf returns the line of redis.conf that makes another server a replica of this one.
func (s *RedisServer) ReplicaOf() string { return fmt.Sprintf("replicaof 127.0.0.1 %d", s.port) }

// Addr returns host:port, the same after a restart.
func (s *RedisServer) Addr() string { return loopback(s.port) }

// SecureAddr returns the host:port at which the server speaks TLS.
func (s *RedisServer) SecureAddr() string { return loopback(s.port + 1) }

// pingRedis checks that the server at addr answers commands and is process pid. Another
// process may have taken the port.
func pingRedis(addr string, pid int) error {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	switch line, err := r.ReadString('\n'); {
	case err != nil:
		return err
	case strings.HasPrefix(line, "-NOAUTH"):
		// The options set a password, so INFO is not available.
		return nil
	case line != "+PONG\r\n":
		return fmt.Errorf("PING was answered with %q", line)
	}
	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if id, ok := strings.CutPrefix(line, "process_id:"); ok {
			if id = strings.TrimSpace(id); id != strconv.Itoa(pid) {
				return fmt.Errorf("the port belongs to process %s", id)
			}
			return nil
		}
	}
}
