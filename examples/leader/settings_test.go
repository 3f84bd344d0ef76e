package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// start runs the program in this process. It must end by itself.
func start(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, env, &out, &errs)
	return code, out.String(), errs.String()
}

// Invalid settings are refused before any connection is made. The error names the flag or
// variable that the user has set and contains no secret.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const noScheme = ": redisurl: the scheme is missing or unknown; it must be redis://, rediss://, unix://, redis+sentinel://, "
	for _, test := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"--redis", "redis://u:hunter2@host:99999"}, `--redis: redisurl: a host is missing or not valid; it must be a name, `},
		{nil, []string{"--redis", "http://hunter2"}, "--redis" + noScheme},
		{map[string]string{"REDIS_URL": "hunter2"}, nil, "REDIS_URL" + noScheme},
		{map[string]string{"LEADER_LEASES": "hunter2"}, nil, `"LEADER_LEASES" is set, but no flag has this name; it must be unset`},
		{map[string]string{"LEADER_PASSWORD": "hunter2"}, nil, `"LEADER_PASSWORD" is set, but no flag has this name; it must be unset` + "\n"},
		{map[string]string{"LEADER_REDIS_CA": "/nowhere.pem"}, nil, `LEADER_REDIS_CA: open /nowhere.pem`},
		{nil, []string{"--redis", "rediss://host", "--redis-cert", "/nowhere.pem"}, `--redis-key: it is not set; it must be set together with the certificate`},
		{nil, []string{"--election", "a b"}, `--election is "a b"; it must be 1 to 191 bytes of UTF-8`},
		{map[string]string{"LEADER_ELECTION": "{a}"}, nil, `LEADER_ELECTION is "{a}"; it must be 1 to 191 bytes of UTF-8`},
		{nil, []string{"--identity", "a\nb"}, `--identity is "a\nb"; it must be 1 to 200 bytes of UTF-8`},
		{nil, []string{"--lease", "99ms"}, `--lease is "99ms"; it must be a duration in whole milliseconds from 100ms to 24h0m0s, such as 10s`},
		{nil, []string{"--lease", "25h"}, `--lease is "25h"`},
		{nil, []string{"--lease", "1500us"}, `--lease is "1500us"`},
		{map[string]string{"LEADER_LEASE": "soon"}, nil, `LEADER_LEASE is "soon"`},
		{nil, []string{"--finish", "-1s"}, `--finish is "-1s"; it must be a duration in whole milliseconds from 0s to`},
		{nil, []string{"--drain", "-1s"}, `--drain is "-1s"; it must be a duration in whole milliseconds from 0s to`},
		{nil, []string{"--linger", "-1s"}, `--linger is "-1s"; it must be a duration in whole milliseconds from 0s to`},
		{nil, []string{"--http", "8080"}, `--http is "8080"; it must be an address such as :8080 or 127.0.0.1:8080, or off`},
		{nil, []string{"--http", "host:"}, `--http is "host:"`},
		{nil, []string{"--http", "host:65536"}, `--http is "host:65536"`},
		{nil, []string{"--log-format", "xml"}, `--log-format is "xml"; it must be text or json`},
		{nil, []string{"--lease"}, "flag needs an argument: -lease; --help lists the flags"},
		{nil, []string{"--nonsense"}, "flag provided but not defined: -nonsense; --help lists the flags"},
		{nil, []string{"redis://u:hunter2@host"}, "arguments after the flags: 1; there must be none"},
	} {
		code, stdout, stderr := start(t, test.env, test.args...)
		if code != refused || stdout != "" || !strings.HasPrefix(stderr, "leader: "+test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v %q: code %d, output %q", test.env, test.args, code, stdout+stderr)
		}
		if strings.Contains(stderr, "hunter2") {
			t.Errorf("%q: the output contains a password: %q", test.args, stderr)
		}
	}
}

// All errors are reported at once, one per line. A flag overrides its variable, and an
// empty variable counts as unset.
func TestManyRefusals(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LEADER_LEASE": "soon", "LEADER_HTTP": "x", "LEADER_FINISH": ""}
	code, _, stderr := start(t, env, "--http", "y", "--log-format", "xml")
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if code != refused || len(lines) != 3 || !strings.HasPrefix(lines[0], `leader: LEADER_LEASE is "soon"`) ||
		!strings.HasPrefix(lines[1], `leader: --http is "y"`) || !strings.HasPrefix(lines[2], `leader: --log-format is "xml"`) {
		t.Errorf("code %d, output %q", code, stderr)
	}
}

// Variables that Kubernetes sets for a Service named leader are no errors, and neither are
// those of other programs.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	if _, err := readSettings(nil, map[string]string{
		"LEADER_SERVICE_HOST": "10.0.0.1", "LEADER_PORT": "tcp://10.0.0.1:8080", "LEADER_PORT_8080_TCP_ADDR": "10.0.0.1",
		"LEADERX": "1", "REDIS": "1", "HOME": "/root",
	}); err != nil {
		t.Error(err)
	}
}

// An address that is in use is an error, and the replica does not campaign.
func TestAddressTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	code, _, stderr := start(t, nil, "--http", taken.Addr().String())
	if code != failed || !strings.Contains(stderr, "leader: --http: listen tcp "+taken.Addr().String()) || strings.Contains(stderr, "campaigning") {
		t.Errorf("code %d, output %q", code, stderr)
	}
}

// Help lists every flag with its variable.
func TestHelp(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := start(t, nil, "--help")
	for _, o := range options() {
		if !strings.Contains(stdout, "--"+o.name+" "+o.hint) || !strings.Contains(stdout, variable(o.name)) {
			t.Errorf("help does not contain --%s and %s", o.name, variable(o.name))
		}
	}
	if code != done || stderr != "" || !strings.Contains(stdout, "REDIS_URL") {
		t.Errorf("code %d, errors %q", code, stderr)
	}
}

// The defaults suit a local Redis.
func TestDefaultSettings(t *testing.T) {
	t.Parallel()
	s, err := readSettings(nil, nil)
	if err != nil || s.redis.Addrs[0] != "localhost:6379" || s.election != "demo" || s.http != ":8080" || s.json || s.drain != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := newReplica(t.Context(), s, new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
	s, err = readSettings([]string{"--http", "off"}, map[string]string{"REDIS_URL": "rediss://u:p%40ss@example.org/3"})
	if err != nil || s.redis.Addrs[0] != "example.org:6379" || s.redis.Password != "p@ss" || s.redis.DB != 3 || s.redis.TLSConfig == nil || s.http != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// A replica that is stopped before it has reached Redis ends.
func TestStopWithoutRedis(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"--redis", "redis://127.0.0.1:1", "--http", "127.0.0.1:0"}, nil, &out, &errs); code != done {
		t.Errorf("code %d, output %q", code, errs.String())
	}
}

// A full pipe on standard error does not keep a replica from stopping.
func TestFault63_FullPipe(t *testing.T) {
	t.Parallel()
	_, full := io.Pipe() // nobody reads it
	defer full.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"--redis", "redis://127.0.0.1:1", "--http", "127.0.0.1:0"}, nil, io.Discard, full)
	}()
	select {
	case got := <-code:
		if got != done {
			t.Errorf("code %d", got)
		}
	case <-time.After(patience):
		t.Error("the replica does not stop")
	}
}
