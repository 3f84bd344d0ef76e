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
// redis.conf, such as "appendonly yes". opts must not contain "bind", "port", "dir" or
// "daemonize". By default the server stores nothing on disk. The program is redis-server in
// PATH, or the one in the environment variable NOONLOCK_REDIS_SERVER.
//
// With "appendonly yes" and "appendfsync always" every acknowledged write survives a
// restart, even after Kill.
func Redis(tb testing.TB, opts ...string) *RedisServer {
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
		tb.Fatalf("redis-server: %v", err)
	}
	p := &process{
		name: "redis-server", dir: dir, removeFolder: remove,
		stopSignal: syscall.SIGTERM, deathSignal: syscall.SIGKILL,
	}
	conf := filepath.Join(dir, "redis.conf")
	// The port is an argument after the file, since it differs between tries of launch.
	lines := append([]string{"bind 127.0.0.1", "daemonize no", `save ""`, "appendonly no"}, opts...)
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		remove()
		tb.Fatalf("redis-server: %v", err)
	}
	p.argv = func(port int) []string {
		return []string{program, conf, "--dir", dir, "--port", strconv.Itoa(port)}
	}
	p.ready = func(port int) error { return pingRedis(loopback(port), p.Pid()) }
	if err := p.launch(); err != nil {
		remove()
		tb.Fatalf("starting: %v", err)
	}
	p.endWith(tb)
	return &RedisServer{process: p}
}

// Addr returns host:port, the same after a restart.
func (s *RedisServer) Addr() string { return loopback(s.port) }

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
