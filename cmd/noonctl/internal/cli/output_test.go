package cli_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/singleton"
)

var errFull = errors.New("no space left on device")

// A full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// Each command that prints fails if its output is lost, and says so in one line.
func TestFault113_LostOutput(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Hold(e.client, "orders")
	e.runs("draw", "@every 1s", actors.Nothing, singleton.JobConfig{})
	e.Until("it ran", func() bool { return e.Raw.LLen(t.Context(), "noonlock:{job/draw}:runs").Val() > 1 })
	for command := range strings.SplitSeq("get jobs,get locks -o json,get locks -o yaml,get locks -o name,describe lock orders,describe job draw,"+
		"history draw,history draw -o json,doctor --observe 100ms,doctor --observe 100ms -o yaml,pause draw,resume draw,trigger draw,"+
		"release orders --yes,--help,--version,run --help,completion bash", ",") {
		args := strings.Fields(command)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		r := runWith(ctx, map[string]string{"NOONLOCK_REDIS": e.url}, full{}, args...)
		if ctx.Err() != nil {
			t.Errorf("%q does not end", args)
		}
		cancel()
		check(t, r, 1, []string{"the output is not complete: ", errFull.Error()}, args)
	}
	// The code of another failure remains.
	check(t, runWith(t.Context(), map[string]string{"NOONLOCK_REDIS": e.url}, full{}, "get", "jobs", "none"), 66, []string{`"none"`}, nil)
}

// doctor prints each check, and the rules of those that are not ok. Its exit code is 1 if one fails, as with
// a wrong password, and another one if the server does not answer.
func TestDoctor(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const long = " --timeout 1m --observe 100ms"
	e.says("doctor"+long, 0, "one server, prefix noonlock: warn\n", "VERDICT   CHECK ", "ok        version ", e.Real.Addr(),
		"warn      persistence ", "\npersistence: Set `appendonly yes`", "!\nversion: ")
	e.set("app:{x}:lock", "a value\x1b[2J")
	e.set("app:\x1b[2J", "x")
	fails := func(url, flags string, code int, text string) {
		t.Helper()
		r := run(t.Context(), url, strings.Fields("doctor"+flags)...)
		if r.code != code || r.errOut != "" || !strings.Contains(r.out, text) || strings.Contains(r.out, "\x1b") || strings.Contains(r.out, "sesame") {
			t.Errorf("doctor%s: want exit code %d and %q, got %+v", flags, code, text, r)
		}
	}
	fails(e.url, " --prefix app"+long, 1, "fail      keys ")
	fails(e.url, " --prefix app -o json"+long, 1, `"verdict": "fail"`)
	fails(e.url, " --prefix app -o yaml"+long, 1, "verdict: fail\ntopology: one server\nchecks:\n  - check: connection\n")
	fails("redis://:sesame@127.0.0.1:1", "", 69, "fail      connection")
	fails(strings.Replace(e.url, "redis://", "redis://u:sesame@", 1), " -o json", 1, "WRONGPASS")
	e.Real.Pause()
	fails(e.url, " --timeout 3s", 69, "no answer within 3s")
	e.Real.Resume()
}

// A server with a private authority, which asks for the certificates of clients, is reached with
// the flags, and with the environment. If only one side uses TLS, the error says so.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	own := servers.SelfSigned(t)
	cert, key := own.Cert, own.Key
	e := newEnv(t, own.RedisConf("tls-auth-clients yes")...)
	e.Hold(e.client, "orders")
	url := "rediss://" + e.Real.SecureAddr()
	with := func(variables map[string]string, args ...string) result {
		return runWith(t.Context(), variables, nil, args...)
	}
	all := []string{"--redis-ca", cert, "--redis-cert", cert, "--redis-key", key}
	for name, r := range map[string]result{
		"flags": with(nil, append([]string{"get", "locks", "-o", "name", "--redis", url}, all...)...),
		"environment": with(map[string]string{
			"NOONLOCK_REDIS": url, "NOONLOCK_REDIS_CA": cert, "NOONLOCK_REDIS_CERT": cert, "NOONLOCK_REDIS_KEY": key,
		}, "get", "locks", "-o", "name"),
	} {
		if r.code != 0 || r.out != "orders\n" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	testenv.Must(t, e.Raw.Do(t.Context(), "ACL", "SETUSER", "me", "on", ">a%/@", "~*", "&*", "+@all").Err())
	apart := map[string]string{"NOONLOCK_REDIS": "redis://" + e.Real.Addr(), "NOONLOCK_REDIS_USERNAME": "me", "NOONLOCK_REDIS_PASSWORD": "a%/@", "NOONLOCK_PREFIX": "other"}
	if r := with(apart, "get", "locks"); r.code != 0 || !strings.Contains(r.errOut, "no locks with the prefix other") {
		t.Errorf("user, password and prefix in the environment: %+v", r)
	}
	apart["NOONLOCK_REDIS_SENTINEL_PASSWORD"] = "hush"
	check(t, with(apart, "get", "locks"), 64, []string{"the URL names no Sentinels"}, nil)
	if r := with(nil, "doctor", "--timeout", "1s", "--redis", url); !strings.Contains(r.out, "--redis-ca must name") {
		t.Errorf("doctor: %+v", r)
	}
	for _, c := range []struct {
		code  int
		says  string
		url   string
		files []string
	}{
		{69, " does not speak TLS; the URL must begin with redis, not rediss", "rediss://" + e.Real.Addr(), nil},
		{69, " needs TLS; the URL must begin with rediss, not redis", "redis://" + e.Real.SecureAddr(), nil},
		{1, "--redis-ca must name the certificates of the authority of " + e.Real.SecureAddr(), url, nil},
		{1, "certificate", url, []string{"--redis-ca", cert}},
		{64, "--redis-key: it is not set", url, []string{"--redis-cert", cert}},
		{64, "--redis-ca: ", url, []string{"--redis-ca", "/nowhere.pem"}},
		{64, "are not a pair", url, []string{"--redis-cert", key, "--redis-key", key}},
		{64, "must begin with rediss", e.url, []string{"--redis-ca", cert}},
		{64, "skip_verify", url + "?skip_verify=true", []string{"--redis-ca", cert}},
	} {
		args := append([]string{"get", "locks", "--timeout", "1s", "--redis", c.url}, c.files...)
		check(t, with(nil, args...), c.code, []string{c.says}, args)
	}
}
