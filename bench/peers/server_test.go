package peers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
)

// A server is the Redis or etcd of one library.
type server struct {
	x     *bench
	addr  string
	redis *servers.RedisServer // nil for etcd
	rdb   *redis.Client
}

// serve starts a server for the library.
func (x *bench) serve(l library) *server {
	x.b.Helper()
	if l.key == nil {
		return x.serveEtcd()
	}
	s := servers.Redis(x.b)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
	x.b.Cleanup(func() { _ = rdb.Close() })
	x.redis = field(x, rdb, "server", "redis_version")
	return &server{x, s.Addr(), s, rdb}
}

// serveEtcd starts an etcd with one member and its default settings.
func (x *bench) serveEtcd() *server {
	x.b.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		x.b.Skip("needs etcd, which is not installed (Debian package etcd-server)")
	}
	dir := filepath.Join(x.b.TempDir(), "data") // etcd creates it for itself alone
	var ports [2]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		x.check(err)
		ports[i] = l.Addr().String()
		x.check(l.Close())
	}
	// The shell ends etcd when this process has ended, even if it was killed: its input is closed.
	cmd := exec.Command("sh", "-c", `"$@" & cat >/dev/null; kill -KILL $!; wait`, "sh", program, "--data-dir", dir, "--logger", "zap", "--log-level", "error",
		"--listen-client-urls", "http://"+ports[0], "--advertise-client-urls", "http://"+ports[0],
		"--listen-peer-urls", "http://"+ports[1], "--initial-advertise-peer-urls", "http://"+ports[1],
		"--initial-cluster", "default=http://"+ports[1])
	input, err := cmd.StdinPipe()
	x.check(err)
	x.check(cmd.Start())
	x.b.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait() // the kill is no failure
	})
	s := &server{x: x, addr: ports[0]}
	for began := time.Now(); ; sleep(x.ctx(), 20*time.Millisecond) {
		version, err := s.get("/version")
		if err == nil {
			_, version, _ = strings.Cut(version, `"etcdserver":"`)
			x.etcd, _, _ = strings.Cut(version, `"`)
			return s
		}
		if time.Since(began) > time.Minute {
			x.b.Fatalf("etcd does not answer: %v", err)
		}
	}
}

func (s *server) get(path string) (string, error) {
	request, err := http.NewRequestWithContext(s.x.ctx(), http.MethodGet, "http://"+s.addr+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// metrics returns the sum of all metrics of etcd that begin with prefix.
func (s *server) metrics(prefix string) (sum float64) {
	s.x.b.Helper()
	text, err := s.get("/metrics")
	s.x.check(err)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		words := strings.Fields(line)
		value, err := strconv.ParseFloat(words[len(words)-1], 64)
		s.x.check(err)
		sum += value
	}
	return sum
}

// field returns a field of INFO.
func field(x *bench, rdb *redis.Client, section, name string) string {
	x.b.Helper()
	text, err := rdb.Info(x.ctx(), section).Result()
	x.check(err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	x.b.Fatalf("INFO %s has no %s", section, name)
	return ""
}

func (s *server) number(section, name string) float64 {
	s.x.b.Helper()
	value, err := strconv.ParseFloat(field(s.x, s.rdb, section, name), 64)
	s.x.check(err)
	return value
}

// processor returns the processor time that the server has used, in seconds.
func (s *server) processor() float64 {
	s.x.b.Helper()
	if s.redis == nil {
		return s.metrics("process_cpu_seconds_total ")
	}
	return s.number("cpu", "used_cpu_user") + s.number("cpu", "used_cpu_sys")
}

// count counts the commands that the server runs until stop is called: those of clients, and
// those inside scripts. For etcd a request is a command, and so is a message of a stream.
func (s *server) count() (stop func() (sent, inside float64)) {
	s.x.b.Helper()
	if s.redis == nil {
		before := s.metrics("grpc_server_msg_received_total{")
		return func() (sent, inside float64) {
			return s.metrics("grpc_server_msg_received_total{") - before, 0
		}
	}
	conn, err := (&net.Dialer{}).DialContext(s.x.ctx(), "tcp", s.addr)
	s.x.check(err)
	_, err = io.WriteString(conn, "MONITOR\r\n")
	s.x.check(err)
	const last = "the last command"
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		s.x.b.Fatal(lines.Err())
	}
	type counts struct {
		sent, inside float64
		err          error
	}
	counted := make(chan counts, 1)
	go func() {
		var n counts
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), `"`+last+`"`) {
				counted <- n
				return
			}
			// +1339518083.107412 [0 127.0.0.1:60866] "get" "x", or [0 lua]
			if _, from, _ := strings.Cut(lines.Text(), " ["); strings.HasPrefix(from, "0 lua]") {
				n.inside++
			} else {
				n.sent++
			}
		}
		n.err = fmt.Errorf("MONITOR ended: %w", lines.Err())
		counted <- n
	}()
	return func() (sent, inside float64) {
		s.x.b.Helper()
		s.x.check(s.rdb.Echo(s.x.ctx(), last).Err())
		n := <-counted
		s.x.check(n.err)
		_ = conn.Close()
		return n.sent, n.inside
	}
}

// open opens a client that is closed with the benchmark.
func (x *bench) open(l library, s *server, opt options) *client {
	x.b.Helper()
	c, err := l.open(s.addr, opt)
	x.check(err)
	x.b.Cleanup(c.close)
	return c
}

// hold prepares a lock.
func (x *bench) hold(ctx context.Context, c *client, name string) hold {
	x.b.Helper()
	h, err := c.lock(ctx, name)
	x.check(err)
	return h
}
