package bench_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

// A server is what one library locks on: a Redis or etcd, or several Redis servers.
type server struct {
	x     *bench
	addr  string               // for a client of the library
	redis *servers.RedisServer // the first one; nil for etcd
	rdb   *redis.Client        // of that one
}

// serve starts what the library needs.
func (x *bench) serve(l library) *server {
	if l.on == etcd {
		return x.serveEtcd()
	}
	var first *servers.RedisServer
	var addr string
	if l.on == sharded {
		cluster := servers.Cluster(x.b, 3, 0)
		first, addr = cluster.Primaries[0], strings.Join(cluster.Addrs(), ",")
	} else {
		first = servers.Redis(x.b)
		addr = first.Addr()
	}
	rdb := redis.NewClient(&redis.Options{Addr: first.Addr(), PoolSize: 1})
	x.b.Cleanup(func() { _ = rdb.Close() })
	if l.on == replicated {
		servers.Redis(x.b, first.ReplicaOf())
		await(x.ctx(), func() bool { return rdb.Wait(x.ctx(), 1, time.Second).Val() == 1 })
	}
	if l.on == watched {
		addr = "sentinel " + servers.Sentinel(x.b, "bench", first.Addr(), 1).Addr()
	}
	s := &server{x, addr, first, rdb}
	x.note("redis-server " + s.field("server", "redis_version"))
	return s
}

// serveEtcd starts an etcd with one member and its default settings.
func (x *bench) serveEtcd() *server {
	s := &server{x: x, addr: servers.Etcd(x.b, false).Addr()}
	version, err := s.get("/version")
	x.check(err)
	_, version, _ = strings.Cut(version, `"etcdserver":"`)
	version, _, _ = strings.Cut(version, `"`)
	x.note("etcd " + version)
	return s
}

func (s *server) get(path string) (string, error) {
	request, err := http.NewRequestWithContext(s.x.ctx(), http.MethodGet, "http://"+s.addr+path, http.NoBody)
	s.x.check(err)
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
	text, err := s.get("/metrics")
	s.x.check(err)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			words := strings.Fields(line)
			value, err := strconv.ParseFloat(words[len(words)-1], 64)
			s.x.check(err)
			sum += value
		}
	}
	return sum
}

// field returns a field of INFO.
func (s *server) field(section, name string) string {
	text, err := s.rdb.Info(s.x.ctx(), section).Result()
	s.x.check(err)
	_, value, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

func (s *server) number(section, name string) float64 {
	value, err := strconv.ParseFloat(s.field(section, name), 64)
	s.x.check(err)
	return value
}

// processor returns the processor time that the server has used, in seconds.
func (s *server) processor() float64 {
	if s.redis == nil {
		return s.metrics("process_cpu_seconds_total ")
	}
	return s.number("cpu", "used_cpu_user") + s.number("cpu", "used_cpu_sys")
}

// count counts the commands that the server runs until stop is called: those of clients, and
// those inside scripts. For etcd a request is a command, and so is a message of a stream.
func (s *server) count() (stop func() (sent, inside float64)) {
	if s.redis == nil {
		before := s.metrics("grpc_server_msg_received_total{")
		return func() (sent, inside float64) {
			return s.metrics("grpc_server_msg_received_total{") - before, 0
		}
	}
	conn, err := (&net.Dialer{}).DialContext(s.x.ctx(), "tcp", s.redis.Addr())
	s.x.check(err)
	_, err = io.WriteString(conn, "MONITOR\r\n")
	s.x.check(err)
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n')
	s.x.check(err)
	const last = "the last command"
	var sent, inside float64
	ended := make(chan error, 1)
	go func() {
		for {
			line, err := lines.ReadString('\n')
			// +1339518083.107412 [0 127.0.0.1:60866] "get" "x", or [0 lua]
			switch _, from, _ := strings.Cut(line, " ["); {
			case err != nil, strings.HasSuffix(line, `"`+last+"\"\r\n"):
				ended <- err
				return
			case strings.HasPrefix(from, "0 lua]"):
				inside++
			default:
				sent++
			}
		}
	}()
	return func() (float64, float64) {
		s.x.check(s.rdb.Echo(s.x.ctx(), last).Err())
		s.x.check(<-ended)
		_ = conn.Close()
		return sent, inside
	}
}

// open opens a client that is closed with the benchmark.
func (x *bench) open(l library, s *server, opt options) *client {
	c, err := l.open(s.addr, opt)
	x.check(err)
	x.b.Cleanup(c.close)
	return c
}
