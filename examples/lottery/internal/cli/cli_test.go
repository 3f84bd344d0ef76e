package cli_test

import (
	"bytes"
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/internal/servers"
)

const secret = "hunter2secret"

// run runs the program with a separate environment.
func run(ctx context.Context, env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = cli.Run(ctx, cli.Process{
		Args: args, Getenv: func(name string) string { return env[name] }, Stdout: &out, Stderr: &errOut,
		Bundled: entrants.FS(fstest.MapFS{}, "none.csv"), Variables: slices.Collect(maps.Keys(env)),
	})
	return code, out.String(), errOut.String()
}

// trap is a server that must not receive connections.
type trap struct {
	addr    string
	visits  atomic.Int32
	closing func()
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr := &trap{addr: listener.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tr.visits.Add(1)
			conn.Close()
		}
	})
	tr.closing = func() { listener.Close(); wg.Wait() }
	t.Cleanup(tr.closing)
	return tr
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const fiveEntrants = "id,eligible\na,true\nb,true\nc,true\nd,true\ne,false\n"

// FAULTS 46, 47, 57 and 62 at the command line: each invalid setting is reported in one
// sentence, before any connection is made or anything is written.
func TestBadInput(t *testing.T) {
	t.Parallel()
	server := newTrap(t)
	folder := t.TempDir()
	list := write(t, "entrants.csv", fiveEntrants)
	single := write(t, "single.csv", "id,eligible\na,true\n")
	file := write(t, "lottery.db", "")
	hidden := write(t, "key.pem", secret)
	authority := servers.SelfSigned(t).Cert
	csv := func(text string) string { return write(t, "list.csv", text) }

	serve := map[string]string{
		"redis": "redis://user:" + secret + "@" + server.addr, "database": "mysql://user:" + secret + "@" + server.addr + "/lottery",
		"entrants": list, "winners": "3", "http": "off",
	}
	verify := map[string]string{
		"redis": serve["redis"], "database": serve["database"], "since": "2026-11-20", "until": "2026-11-21",
	}
	const noScheme = "the scheme is missing or unknown; it must be redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://"
	redisUsage := "the URL of Redis, redis://user:password@host:port/db, redis+sentinel://…?master=NAME or redis+cluster://…; with TLS rediss"
	databaseUsage := "the URL of the database, sqlite:PATH, mysql://user:password@host:port/db or postgres://…"
	instants := `; it must be a duration before now such as 48h, a date such as 2026-11-21, a date and time such as "2026-11-21 12:00" in the time zone, ` +
		`one with an offset such as 2026-11-21T12:00:00+08:00, or now`

	for _, c := range []struct {
		name    string
		command string
		flags   map[string]string // replaces valid flags; "-" removes one
		env     map[string]string
		extra   []string
		want    string // the text after "lottery COMMAND: "
	}{
		{name: "unknown flag", command: "serve", extra: []string{"--colour", "red"}, want: "flag provided but not defined: -colour; --help lists the flags"},
		{name: "flag without value", command: "serve", extra: []string{"--identity"}, want: "flag needs an argument: -identity; --help lists the flags"},
		{name: "argument", command: "serve", extra: []string{serve["redis"]}, want: "arguments after the flags: 1; there must be none; --help lists the flags"},
		{name: "arguments", command: "serve", extra: []string{"a", "b"}, want: "arguments after the flags: 2; there must be none; --help lists the flags"},
		{name: "flag of another command", command: "winners", extra: []string{"--redis", "x"}, want: "flag provided but not defined: -redis; --help lists the flags"},
		{name: "demo takes none", command: "demo", extra: []string{"--fast"}, want: "flag provided but not defined: -fast; --help lists the flags"},

		{name: "no Redis", command: "serve", flags: map[string]string{"redis": "-"}, want: "--redis (or LOTTERY_REDIS) is missing; it must be " + redisUsage},
		{name: "Redis without scheme", command: "serve", flags: map[string]string{"redis": server.addr}, want: "--redis: " + noScheme},
		{name: "Redis of http", command: "serve", flags: map[string]string{"redis": "http://" + server.addr}, want: "--redis: " + noScheme},
		{name: "two servers", command: "serve", flags: map[string]string{"redis": "redis://a redis://b"}, want: "--redis: there are 2 URLs; it must be one, or 3, 5, 7 or 9 of independent servers"},
		{name: "eleven servers", command: "serve", flags: map[string]string{"redis": strings.Repeat("redis://a ", 11)}, want: "--redis: there are 11 URLs; it must be one, or 3, 5, 7 or 9 of independent servers"},
		{name: "several servers without a ledger", command: "verify", flags: map[string]string{"redis": "redis://a redis://b redis://c"}, want: "--redis: there are several URLs; it must be one, because several servers have no ledger to read"},
		{name: "a cluster among several servers", command: "serve", flags: map[string]string{"redis": "redis://a redis+cluster://b redis://c"}, want: "servers[1] is a *redis.ClusterClient; it must be a *redis.Client: a cluster moves keys between servers, and they would count as lost"},
		{name: "no list", command: "serve", flags: map[string]string{"redis-list": "0"}, want: `--redis-list is "0"; it must be a whole number from 1 to 1000000`},
		{name: "Redis without host", command: "serve", flags: map[string]string{"redis": "redis://"}, want: "--redis: a host is missing or not valid; it must be a name, an IPv4 address, or an IPv6 address in brackets"},
		{name: "Redis with an unknown option", command: "serve", flags: map[string]string{"redis": "redis://localhost/?sslmode=no"}, want: "--redis: the URL is refused by go-redis; it must be a URL as in the documentation of redisurl"},
		{name: "Redis with a raw slash in the password", command: "verify", flags: map[string]string{"redis": "redis://user:12/" + secret + "@localhost:6379"}, want: "--redis: the user or password is not encoded; it must be percent-encoded"},
		{name: "Sentinel without a name", command: "serve", flags: map[string]string{"redis": "redis+sentinel://:" + secret + "@localhost"}, want: "--redis: the parameter master is missing; it must be the name of the primary that the Sentinels watch"},
		{name: "Redis in the environment", command: "serve", flags: map[string]string{"redis": "-"}, env: map[string]string{"LOTTERY_REDIS": "tcp://" + secret}, want: "LOTTERY_REDIS: " + noScheme},

		{name: "CA that is not there", command: "serve", flags: map[string]string{"redis-ca": folder + "/ca.pem"}, want: "--redis-ca: open " + folder + "/ca.pem: no such file or directory"},
		{name: "CA that is none", command: "verify", flags: map[string]string{"redis-ca": list}, want: `--redis-ca: "` + list + `" contains no certificate; it must be a PEM file of certificates`},
		{name: "CA that is a folder", command: "winners", flags: map[string]string{"database-ca": folder}, want: "--database-ca: read " + folder + ": is a directory"},
		{name: "certificate without key", command: "serve", flags: map[string]string{"redis-cert": list}, want: "--redis-key: it is not set; it must be set together with the certificate"},
		{name: "key without certificate", command: "winners", flags: map[string]string{"database-key": list}, want: "--database-cert: it is not set; it must be set together with the key"},
		{name: "key that is not there", command: "serve", flags: map[string]string{"database-cert": list, "database-key": folder + "/key.pem"}, want: "--database-key: open " + folder + "/key.pem: no such file or directory"},
		{name: "certificate and key that are none", command: "serve", flags: map[string]string{"redis-cert": list, "redis-key": hidden}, want: `--redis-cert: "` + list + `" and "` + hidden + `" are not a pair; they must be PEM files of a certificate and its private key: tls: `},
		{name: "CA for a Redis without TLS", command: "serve", flags: map[string]string{"redis-ca": authority}, want: "--redis: the URL does not use TLS; with certificates it must begin with rediss"},
		{name: "CA for a Redis that is not checked", command: "serve", flags: map[string]string{"redis": "rediss://" + server.addr + "?skip_verify=true", "redis-ca": authority}, want: "--redis: the URL has skip_verify, which disables the check of certificates; it must be absent if --redis-ca is set"},
		{name: "CA for a file", command: "winners", flags: map[string]string{"database": "sqlite:" + file, "database-ca": authority}, want: "--database: invalid database DSN: sqlite: is a file; certificates must not be set"},
		{name: "CA for a MySQL without TLS", command: "winners", flags: map[string]string{"database": "mysql://u:" + secret + "@h/db?tls=false", "database-ca": authority}, want: "--database: invalid database DSN: its parameter tls must be true or absent if certificates are set"},
		{name: "CA for a MySQL that is not checked", command: "winners", flags: map[string]string{"database": "mysql://u:" + secret + "@h/db?tls=skip-verify", "database-ca": authority}, want: "--database: invalid database DSN: its parameter tls must be true or absent if certificate authorities are set"},
		{name: "CA for a PostgreSQL without TLS", command: "winners", flags: map[string]string{"database": "postgres://u:" + secret + "@h/db?sslmode=disable", "database-ca": authority}, want: "--database: invalid database DSN: its parameter sslmode must be verify-full, verify-ca or absent if certificates are set"},
		{name: "CA for a PostgreSQL that prefers TLS", command: "winners", flags: map[string]string{"database": "postgres://u:" + secret + "@h/db?sslmode=prefer", "database-ca": authority}, want: "--database: invalid database DSN: its parameter sslmode must be verify-full, verify-ca or absent if certificates are set"},
		{name: "CA for a PostgreSQL that is not checked", command: "winners", flags: map[string]string{"database": "postgres://u:" + secret + "@h/db?sslmode=require", "database-ca": authority}, want: "--database: invalid database DSN: its parameter sslmode must be verify-full, verify-ca or absent if certificates are set"},

		{name: "two passwords of Redis", command: "serve", flags: map[string]string{"redis": "redis://u:" + secret + "@h", "redis-password": secret}, want: "--redis-password: the URL also contains this password; only one of them must be set"},
		{name: "user of Redis without a password", command: "serve", flags: map[string]string{"redis-username": "noon"}, want: "--redis-username: the password is missing; it must be set as redis-password, or user and password must be in the URL"},
		{name: "two passwords of the Sentinels", command: "verify", flags: map[string]string{"redis": "redis+sentinel://h?master=m&sentinel_password=" + secret}, env: map[string]string{"LOTTERY_REDIS_SENTINEL_PASSWORD": secret}, want: "LOTTERY_REDIS_SENTINEL_PASSWORD: the URL also contains this password; only one of them must be set"},
		{name: "password of no Sentinels", command: "serve", flags: map[string]string{"redis-sentinel-password": secret}, want: "--redis-sentinel-password: the URL names no Sentinels; with this password it must begin with redis+sentinel or rediss+sentinel"},
		{name: "two passwords of the database", command: "winners", flags: map[string]string{"database": "postgres://u:" + secret + "@h/db", "database-password": secret}, want: "--database-password: the URL also contains this password; only one of them must be set"},
		{name: "password of a file", command: "winners", flags: map[string]string{"database": "sqlite:" + file, "database-password": secret}, want: "--database-password: the DSN names a file, which has no password; it must not be set"},

		{name: "misspelt variable", command: "serve", env: map[string]string{"LOTTERY_WINNER": "3"}, want: `"LOTTERY_WINNER" is set, but no flag has this name; it must be unset`},
		{name: "unknown variable", command: "verify", env: map[string]string{"LOTTERY_PASSWORD": secret}, want: `"LOTTERY_PASSWORD" is set, but no flag has this name; it must be unset`},

		{name: "no database", command: "serve", flags: map[string]string{"database": "-"}, want: "--database (or LOTTERY_DATABASE) is missing; it must be " + databaseUsage},
		{name: "database of another kind", command: "serve", flags: map[string]string{"database": "oracle://u:" + secret + "@h/db"}, want: "--database: invalid database DSN: it must begin with sqlite:, mysql:// or postgres://"},
		{name: "database without host", command: "serve", flags: map[string]string{"database": "mysql://u:" + secret + "@/db"}, want: "--database: invalid database DSN: it must name a host, as in mysql://user:password@host/database"},
		{name: "database at no port", command: "serve", flags: map[string]string{"database": "mysql://u:" + secret + "@h:99999/db"}, want: "--database: invalid database DSN: its port must be a number from 1 to 65535"},
		{name: "database without name", command: "serve", flags: map[string]string{"database": "mysql://u:" + secret + "@h"}, want: "--database: invalid database DSN: it must name one database, as in mysql://user:password@host/database"},
		{name: "database that is no URL", command: "serve", flags: map[string]string{"database": "mysql://u:%" + secret + "@h/db"}, want: "--database: invalid database DSN: it must be a URL, with special characters in user and password percent-encoded, such as %40 for @"},
		{name: "SQLite without path", command: "serve", flags: map[string]string{"database": "sqlite:"}, want: "--database: invalid database DSN: it must name a file, as in sqlite:lottery.db"},
		{name: "SQLite in a folder that is not there", command: "serve", flags: map[string]string{"database": "sqlite:" + folder + "/none/lottery.db"}, want: "--database: stat " + folder + "/none: no such file or directory"},
		{name: "SQLite below a file", command: "serve", flags: map[string]string{"database": "sqlite:" + file + "/lottery.db"}, want: `--database: "` + file + `" is a file; it must be a directory for the database file`},
		{name: "SQLite file that is not there", command: "winners", flags: map[string]string{"database": "sqlite:" + folder + "/lottery.db"}, want: "--database: stat " + folder + "/lottery.db: no such file or directory"},
		{name: "SQLite file that is a folder", command: "winners", flags: map[string]string{"database": "sqlite:" + folder}, want: `--database: "` + folder + `" is a directory; it must be the database file`},

		{name: "schedule of four fields", command: "serve", flags: map[string]string{"schedule": "0 12 * *"}, want: `--schedule is invalid: spec is "0 12 * *"; it must be the five fields minute, hour, day of month, month, day of week, not 4; seconds and years are not supported (use @every for short intervals)`},
		{name: "schedule of 30 February", command: "serve", flags: map[string]string{"schedule": "0 12 30 2 *"}, want: `--schedule is invalid: spec is "0 12 30 2 *"; it must`},
		{name: "schedule that is too short", command: "serve", flags: map[string]string{"schedule": "@every 5ms"}, want: `--schedule is invalid: the interval of @every is "5ms"; it must be at least 100ms`},
		{name: "empty schedule", command: "serve", flags: map[string]string{"schedule": ""}, want: `--schedule is invalid: spec is ""; it must be five fields`},

		{name: "unknown time zone", command: "serve", flags: map[string]string{"time-zone": "Asia/Nowhere"}, want: `--time-zone is "Asia/Nowhere"; it must be a name in the time zone data (IANA), such as Europe/Paris or UTC`},
		{name: "time zone of the machine", command: "serve", flags: map[string]string{"time-zone": "Local"}, want: `--time-zone is "Local"; it must be a time zone that is the same on each machine, such as Europe/Paris or UTC`},
		{name: "time zone in the environment", command: "serve", env: map[string]string{"LOTTERY_TIME_ZONE": "../etc"}, want: `LOTTERY_TIME_ZONE is "../etc"; it must be a name in the time zone data (IANA), such as Europe/Paris or UTC`},

		{name: "lease too short", command: "serve", flags: map[string]string{"lease": "99ms"}, want: `--lease is "99ms"; it must be a duration in whole milliseconds from 100ms to 24h0m0s, such as 10s`},
		{name: "negative lease", command: "serve", flags: map[string]string{"lease": "-10s"}, want: `--lease is "-10s"; it must be a duration in whole milliseconds from 100ms to 24h0m0s, such as 10s`},
		{name: "lease that overflows", command: "serve", flags: map[string]string{"lease": "9999999h"}, want: `--lease is "9999999h"; it must be a duration in whole milliseconds from 100ms to 24h0m0s, such as 10s`},
		{name: "lease without unit", command: "serve", flags: map[string]string{"lease": "10"}, want: `--lease is "10"; it must be a duration in whole milliseconds from 100ms to 24h0m0s, such as 10s`},
		{name: "lease with a fraction", command: "serve", flags: map[string]string{"lease": "100.5ms"}, want: `--lease is "100.5ms"; it must be a duration in whole milliseconds from 100ms to 24h0m0s, such as 10s`},

		{name: "no winners", command: "serve", flags: map[string]string{"winners": "0"}, want: `--winners is "0"; it must be a whole number from 1 to 1000000`},
		{name: "winners in words", command: "verify", flags: map[string]string{"winners": "ten"}, want: `--winners is "ten"; it must be a whole number from 1 to 1000000`},
		{name: "winners that overflow", command: "serve", flags: map[string]string{"winners": "99999999999999999999"}, want: `--winners is "99999999999999999999"; it must be a whole number from 1 to 1000000`},
		{name: "address without port", command: "serve", flags: map[string]string{"http": "localhost"}, want: `--http is "localhost"; it must be an address such as :8080 or 127.0.0.1:8080, or off`},
		{name: "address with a port too great", command: "serve", flags: map[string]string{"http": ":65536"}, want: `--http is ":65536"; it must be an address such as :8080 or 127.0.0.1:8080, or off`},
		{name: "log format", command: "serve", flags: map[string]string{"log-format": "xml"}, want: `--log-format is "xml"; it must be text or json`},
		{name: "identity with a control character", command: "serve", flags: map[string]string{"identity": "a\nb"}, want: `--identity is "a\nb"; it must be 1 to 200 bytes of UTF-8 without control characters`},
		{name: "identity too long", command: "serve", flags: map[string]string{"identity": strings.Repeat("x", 201)}, want: `--identity is "` + strings.Repeat("x", 60) + `"… (201 bytes); it must be 1 to 200 bytes of UTF-8 without control characters`},

		{name: "no entrants", command: "serve", flags: map[string]string{"entrants": "-"}, want: "--entrants (or LOTTERY_ENTRANTS) is missing; it must be the CSV file of the entrants, with the header id,eligible"},
		{name: "entrants that cannot be read", command: "serve", flags: map[string]string{"entrants": folder + "/none.csv"}, want: "--entrants: open " + folder + "/none.csv: no such file or directory"},
		{name: "too few entrants", command: "serve", flags: map[string]string{"winners": "5"}, want: `--entrants: "` + list + `" has 5 entrants, 4 of them eligible; at least 5 must be eligible, one for each winner`},

		{name: "a single entrant", command: "serve", flags: map[string]string{"entrants": single}, want: `--entrants: "` + single + `" has 1 entrant, 1 of them eligible; at least 3 must be eligible, one for each winner`},

		{name: "drain in words", command: "serve", flags: map[string]string{"drain": "long"}, want: `--drain is "long"; it must be a duration in whole milliseconds from 0s to 1h0m0s, such as 10s`},
		{name: "negative drain", command: "serve", flags: map[string]string{"drain": "-1s"}, want: `--drain is "-1s"; it must be a duration in whole milliseconds from 0s to 1h0m0s, such as 10s`},
		{name: "drain without unit", command: "serve", flags: map[string]string{"drain": "15"}, want: `--drain is "15"; it must be a duration in whole milliseconds from 0s to 1h0m0s, such as 10s`},
		{name: "drain that is no drain any more", command: "serve", flags: map[string]string{"drain": "61m"}, want: `--drain is "61m"; it must be a duration in whole milliseconds from 0s to 1h0m0s, such as 10s`},
		{name: "drain in the environment", command: "serve", env: map[string]string{"LOTTERY_DRAIN": "1.5ms"}, want: `LOTTERY_DRAIN is "1.5ms"; it must be a duration in whole milliseconds from 0s to 1h0m0s, such as 10s`},
		{name: "stale at once", command: "serve", flags: map[string]string{"stale-after": "10ms"}, want: `--stale-after is "10ms"; it must be a duration from 1s to 87600h0m0s, such as 10s, or off`},
		{name: "stale in days", command: "serve", env: map[string]string{"LOTTERY_STALE_AFTER": "2d"}, want: `LOTTERY_STALE_AFTER is "2d"; it must be a duration from 1s to 87600h0m0s, such as 10s, or off`},

		{name: "since in words", command: "verify", flags: map[string]string{"since": "yesterday"}, want: `--since is "yesterday"` + instants},
		{name: "since ahead", command: "verify", flags: map[string]string{"since": "-1h"}, want: `--since is "-1h"` + instants},
		{name: "until on a day that is none", command: "winners", flags: map[string]string{"until": "2026-02-30"}, want: `--until is "2026-02-30"` + instants},
		{name: "empty range", command: "verify", flags: map[string]string{"until": "2026-11-20"}, want: `--until is "2026-11-20"; it must be later than since, "2026-11-20"`},
		{name: "durations backwards", command: "winners", flags: map[string]string{"since": "1h", "until": "2h"}, want: `--until is "2h"; it must be later than since, "1h"`},
		{name: "range backwards", command: "winners", flags: map[string]string{"since": "2026-11-21", "until": "2026-11-20"}, want: `--until is "2026-11-20"; it must be later than since, "2026-11-21"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			refuse(t, c.command, map[string]map[string]string{
				"serve": serve, "verify": verify, "winners": {"database": serve["database"]}, "demo": {},
			}[c.command], c.flags, c.env, c.extra, c.want)
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty file":         {"", `the file is empty; it must begin with the header "id,eligible"`},
		"no header":          {"a,true\n", `:1:1: the header is "a,true"; it must be "id,eligible"`},
		"no entrant":         {"id,eligible\n", "the list has no entrants"},
		"three fields":       {"id,eligible\na,true\nb,true,7\n", ":3:"},
		"bad eligible":       {"id,eligible\na,true\nb,yes\n", `:3:3: eligible is "yes"; it must be true or false`},
		"empty id":           {"id,eligible\n,true\n", `:2:1: the id is ""; it must not be empty`},
		"duplicate id":       {"id,eligible\na,true\nb,true\na,false\n", `:4:1: the id "a" is already in line 2`},
		"quote out of place": {"id,eligible\na\"b,true\n", ":2:"},
	} {
		t.Run("list with "+name, func(t *testing.T) {
			t.Parallel()
			path := csv(c.text)
			want := "--entrants: " + path
			if !strings.HasPrefix(c.want, ":") {
				want += ": "
			}
			refuse(t, "serve", serve, map[string]string{"entrants": path}, nil, nil, want+c.want)
		})
	}
	t.Cleanup(func() {
		server.closing()
		if n := server.visits.Load(); n != 0 {
			t.Errorf("%d connections were made although the input was refused", n)
		}
		left, err := os.ReadDir(folder)
		if err != nil || len(left) != 0 {
			t.Errorf("the folder holds %v, %v; nothing was to be written", left, err)
		}
	})
}

// refuse runs a command and checks that its output is one line that begins with want.
func refuse(t *testing.T, command string, good, flags, env map[string]string, extra []string, want string) {
	t.Helper()
	args := []string{command}
	for name, value := range good {
		if other, ok := flags[name]; ok {
			value = other
		}
		if value != "-" {
			args = append(args, "--"+name+"="+value)
		}
	}
	for name, value := range flags {
		if _, ok := good[name]; !ok {
			args = append(args, "--"+name+"="+value)
		}
	}
	code, stdout, stderr := run(t.Context(), env, append(args, extra...)...)
	if code != cli.Refused {
		t.Errorf("exit code %d, want %d", code, cli.Refused)
	}
	if stdout != "" {
		t.Errorf("standard output: %s", stdout)
	}
	if !strings.HasPrefix(stderr, "lottery "+command+": "+want) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("standard error:\n%swant one line that begins with\nlottery %s: %s", stderr, command, want)
	}
	if strings.Contains(stderr, secret) {
		t.Error("the password was shown")
	}
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	code, _, stderr := run(t.Context(), map[string]string{"LOTTERY_LEASE": "soon"}, "serve", "--winners", "0", "--time-zone", "Nowhere")
	if code != cli.Refused {
		t.Errorf("exit code %d, want %d", code, cli.Refused)
	}
	for _, want := range []string{"--redis", "--database", "--entrants", "--winners", "--time-zone", "LOTTERY_LEASE"} {
		if n := strings.Count(stderr, "lottery serve: "+want); n != 1 {
			t.Errorf("%d lines about %s, want 1:\n%s", n, want, stderr)
		}
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Parallel()
	// Both are invalid, but only one is reported.
	_, _, stderr := run(t.Context(), map[string]string{"LOTTERY_LEASE": "soon"}, "serve", "--lease", "later")
	if !strings.Contains(stderr, `--lease is "later"`) || strings.Contains(stderr, "soon") {
		t.Error(stderr)
	}
	// An empty variable counts as unset, so the default applies.
	_, _, stderr = run(t.Context(), map[string]string{"LOTTERY_LEASE": ""}, "serve")
	if strings.Contains(stderr, "lease") {
		t.Error(stderr)
	}
}

// Variables that Kubernetes sets for a Service named lottery are not errors, and neither are
// variables of other commands or programs.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	_, _, stderr := run(t.Context(), map[string]string{
		"LOTTERY_SERVICE_HOST": "10.0.0.1", "LOTTERY_SERVICE_PORT": "8080", "LOTTERY_SERVICE_PORT_HTTP": "8080", "LOTTERY_PORT": "tcp://10.0.0.1:8080",
		"LOTTERY_PORT_8080_TCP": "tcp://10.0.0.1:8080", "LOTTERY_PORT_8080_TCP_ADDR": "10.0.0.1", "LOTTERY_REDIS_SERVICE_HOST": "10.0.0.2",
		"LOTTERY_REDIS_PORT_6379_TCP_PROTO": "tcp", "LOTTERY_SINCE": "2026-11-21", "HOME": "/root", "LOTTERYX": "1",
	}, "serve")
	for name := range strings.FieldsSeq(stderr) {
		if strings.Contains(name, "_PORT") || strings.Contains(name, "_SERVICE") || strings.Contains(name, "SINCE") || strings.Contains(name, "LOTTERYX") {
			t.Errorf("reported: %s", stderr)
			break
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	code, _, stderr := run(t.Context(), nil, "draw")
	if want := "lottery: unknown command \"draw\"; lottery help lists all commands\n"; code != cli.Refused || stderr != want {
		t.Errorf("exit code %d, %q; want %d, %q", code, stderr, cli.Refused, want)
	}
}
