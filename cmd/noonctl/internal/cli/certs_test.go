package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A server with a private authority, which asks for the certificates of clients, is reached with
// the flags, and with the environment. If only one side uses TLS, the error says so.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	own := servers.SelfSigned(t)
	cert, key := own.Cert, own.Key
	e := newEnv(t, own.RedisConf("tls-auth-clients yes")...)
	e.hold("orders")
	url := "rediss://" + e.Real.SecureAddr()
	with := func(variables map[string]string, args ...string) result {
		var out, errOut bytes.Buffer
		code := cli.Run(t.Context(), cli.Process{
			Args: args, Getenv: func(name string) string { return variables[name] }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
		})
		return result{code, out.String(), errOut.String()}
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
