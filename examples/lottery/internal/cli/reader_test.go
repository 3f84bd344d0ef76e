package cli_test

import (
	"crypto/rand"
	"crypto/tls"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// An account with read permission can run winners and verify. Neither creates tables: if
// they are missing, the commands report an error.
func TestReadersNeedOnlyReadPermission(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fresh  func(testing.TB) servers.SQL
		scheme string
		driver string
		plain  string
		grant  string
	}{
		"MariaDB":    {servers.MariaDB, "mysql", "mysql", "%s:%s@tcp(%s:%d)/%s", "GRANT SELECT ON %[2]s.* TO %[1]s@'%%'"},
		"PostgreSQL": {servers.PostgreSQL, "postgres", "pgx", "postgres://%s:%s@%s:%d/%s", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO %s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := c.fresh(t)
			reader := d
			reader.User = d.Reader
			owner, err := sql.Open(c.driver, fmt.Sprintf(c.plain, d.User, d.Password, d.Host, d.Port, d.Database))
			if err != nil {
				t.Fatal(err)
			}
			defer owner.Close()
			grant := func() {
				t.Helper()
				statement := c.grant
				if strings.Contains(statement, "[2]") {
					statement = fmt.Sprintf(statement, d.Reader, d.Database)
				} else {
					statement = fmt.Sprintf(statement, d.Reader)
				}
				if _, err := owner.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			grant()
			code, _, stderr := run(t.Context(), nil, "winners", "--database="+dsn(c.scheme, reader))
			if code != cli.Unseen || !strings.Contains(stderr, "no tables of the lottery") || strings.Contains(stderr, d.Password) {
				t.Errorf("without tables: exit code %d\n%s", code, stderr)
			}

			redis := startRedis(t)
			shared := []string{"--redis=redis://" + redis.Addr(), "--winners=3"}
			r := serve(t, append(shared, "--schedule=@every "+playedEvery.String(), "--database="+dsn(c.scheme, d), "--lease=1s", "--entrants="+write(t, "entrants.csv", fiveEntrants))...)
			first := r.await("draw committed", 1).Tick
			r.await("draw committed", 2)
			r.end()
			grant()
			since := []string{"--since=" + first.Format(time.RFC3339Nano), "--until=" + first.Add(playedEvery).Format(time.RFC3339Nano)}
			code, stdout, stderr := run(t.Context(), nil, append([]string{"winners", "--database=" + dsn(c.scheme, reader)}, since...)...)
			if code != cli.Done || strings.Count(stdout, "\n") != 4 {
				t.Errorf("winners: exit code %d\n%s%s", code, stdout, stderr)
			}
			code, stdout, stderr = run(t.Context(), nil, slices.Concat([]string{"verify", "--database=" + dsn(c.scheme, reader)}, shared, since)...)
			if code != cli.Done || !strings.Contains(stdout, "all noons were drawn") {
				t.Errorf("verify: exit code %d\n%s%s", code, stdout, stderr)
			}
			// Without read permission, the commands cannot read the data.
			if _, err := owner.ExecContext(t.Context(), strings.NewReplacer("GRANT", "REVOKE", " TO ", " FROM ").Replace(
				map[bool]string{true: fmt.Sprintf("GRANT SELECT ON %s.* TO %s@'%%'", d.Database, d.Reader), false: "GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + d.Reader}[name == "MariaDB"])); err != nil {
				t.Fatal(err)
			}
			code, _, stderr = run(t.Context(), nil, append([]string{"winners", "--database=" + dsn(c.scheme, reader)}, since...)...)
			if code != cli.Unseen || !strings.Contains(stderr, "denied") || strings.Contains(stderr, d.Password) {
				t.Errorf("without the right: exit code %d\n%s", code, stderr)
			}
		})
	}
}

// Reading a SQLite file does not change the file or its directory.
func TestReadersDoNotChangeTheFile(t *testing.T) {
	t.Parallel()
	p := play(t, 1)
	before, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "lottery.db")
	copyFile(t, p.file, path)
	if code, _, stderr := run(t.Context(), nil, "winners", "--database=sqlite:"+path); code != cli.Done {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if code, stdout, stderr := p.verify(t, "sqlite:"+path); code != cli.Done {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file was changed, %v", err)
	}
	empty := write(t, "empty.db", "")
	code, _, stderr := run(t.Context(), nil, "winners", "--database=sqlite:"+empty)
	if code != cli.Unseen || !strings.Contains(stderr, "no tables of the lottery") {
		t.Errorf("without tables: exit code %d\n%s", code, stderr)
	}
	if info, err := os.Stat(empty); err != nil || info.Size() != 0 {
		t.Errorf("tables were made: %v, %v", info, err)
	}
	code, _, stderr = run(t.Context(), nil, "winners", "--database=sqlite:"+write(t, "text.db", "this is no database, but rather long a text"))
	if code != cli.Unseen || !strings.Contains(stderr, "not a database") {
		t.Errorf("a text: exit code %d\n%s", code, stderr)
	}
}

// A file in a directory without write permission, as on a read-only file system, can still be
// read. A replica, which writes, reports its user and the path. Root may write everywhere, so for
// root the test runs as another user.
func TestReadersOfAReadOnlyFile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("rights are other ones there")
	}
	const path = "LOTTERY_TEST_READ_ONLY"
	if file := os.Getenv(path); file != "" { // this is the process of the other user
		code, stdout, stderr := run(t.Context(), nil, "winners", "--database=sqlite:"+file)
		if code != cli.Done || strings.Count(stdout, "\n") < 4 {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
		for name, unwritable := range map[string]string{file: filepath.Dir(file), "/dev/null/lottery.db": ""} {
			dsn, err := store.ParseDSN("sqlite:" + name)
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.Open(t.Context(), dsn, sqlonce.Config{})
			want := fmt.Sprintf("uid %d with gid %d cannot write to %q: permission denied; set owner, group or mode of the volume", os.Getuid(), os.Getgid(), unwritable)
			if err == nil || strings.Contains(err.Error(), want) != (unwritable != "") {
				t.Errorf("a replica with %s: %v; want %q", name, err, want)
			}
		}
		return
	}
	p := play(t, 1)
	// Not TempDir, since other users cannot access its parent directory.
	folder, err := os.MkdirTemp("", "noonlock-"+rand.Text()[:8]) //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.Chmod(folder, 0o700)
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	file, program := filepath.Join(folder, "lottery.db"), filepath.Join(folder, "test")
	copyFile(t, p.file, file)
	copyFile(t, os.Args[0], program)
	for name, mode := range map[string]os.FileMode{file: 0o444, program: 0o555, folder: 0o555} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), program, "-test.run=^TestReadersOfAReadOnlyFile$")
	command.Dir, command.Env = folder, append(os.Environ(), path+"="+file)
	asNobody(command)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Redis requires a client certificate, as it does by default with TLS. The lottery has one
// from a private authority. Without the certificate or the authority, the replica keeps
// logging an error and shows no key. New connections use a replaced certificate.
func TestServeWithCertificatesForRedis(t *testing.T) {
	t.Parallel()
	ours := servers.SelfSigned(t)
	client := ours.Sign(t)
	redis := miniredis.NewMiniRedis()
	redis.ClockTTL(true)
	err := redis.StartTLS(&tls.Config{
		Certificates: []tls.Certificate{ours.Sign(t).Load(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	file := filepath.Join(t.TempDir(), "lottery.db")
	args := []string{
		"--redis=rediss://" + redis.Addr(), "--winners=3", "--schedule=@every 100ms", "--database=sqlite:" + file,
		"--entrants=" + write(t, "entrants.csv", fiveEntrants),
	}
	for name, more := range map[string][]string{
		"an unknown authority": nil,
		"no certificate":       {"--redis-ca=" + ours.Cert},
	} {
		r := serve(t, append(args, more...)...)
		r.awaitPage("/readyz", 500, "[-]redis failed")
		if code := r.end(); code != cli.Done {
			t.Errorf("%s: exit code %d\n%s", name, code, r.logs)
		}
	}
	good := []string{"--redis-ca=" + ours.Cert, "--redis-cert=" + client.Cert, "--redis-key=" + client.Key}
	r := serve(t, append(args, good...)...)
	first := r.await("draw committed", 1).Tick
	if code := r.end(); code != cli.Done {
		t.Errorf("exit code %d\n%s", code, r.logs)
	}
	code, stdout, stderr := run(t.Context(), nil, slices.Concat([]string{
		"verify", "--redis=rediss://" + redis.Addr(), "--database=sqlite:" + file, "--winners=3",
		"--since=" + first.Format(time.RFC3339Nano), "--until=" + first.Add(playedEvery).Format(time.RFC3339Nano),
	}, good)...)
	if code != cli.Done {
		t.Errorf("verify: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// The same for MariaDB, and the errors that both drivers return for the files.
func TestCertificatesForTheDatabase(t *testing.T) {
	t.Parallel()
	ours, theirs := servers.SelfSigned(t), servers.SelfSigned(t)
	server, client := ours.Sign(t), ours.Sign(t)
	maria := servers.MariaDBServer(t, "--ssl-cert="+server.Cert, "--ssl-key="+server.Key, "--ssl-ca="+ours.Cert, "--require-secure-transport=ON")
	d := maria.Database(t)
	plain := dsn("mysql", d)
	winners := func(more ...string) (int, string) {
		code, _, stderr := run(t.Context(), nil, append([]string{"winners"}, more...)...)
		return code, stderr
	}
	for name, c := range map[string]struct {
		args []string
		want string // of the error
	}{
		"our authority":                      {[]string{"--database=" + plain, "--database-ca=" + ours.Cert}, "no tables"},
		"our authority, and a certificate":   {[]string{"--database=" + plain + "?tls=true", "--database-ca=" + ours.Cert, "--database-cert=" + client.Cert, "--database-key=" + client.Key}, "no tables"},
		"another authority":                  {[]string{"--database=" + plain, "--database-ca=" + theirs.Cert}, "certificate"},
		"the system's authorities":           {[]string{"--database=" + plain + "?tls=true"}, "certificate"},
		"a certificate, and nothing checked": {[]string{"--database=" + plain + "?tls=skip-verify", "--database-cert=" + client.Cert, "--database-key=" + client.Key}, "no tables"},
		"none":                               {[]string{"--database=" + plain}, "denied"},
	} {
		code, stderr := winners(c.args...)
		if code != cli.Unseen || !strings.Contains(stderr, c.want) || strings.Contains(stderr, d.Password) {
			t.Errorf("%s: exit code %d, want %q\n%s", name, code, c.want, stderr)
		}
	}
}

// PostgreSQL over TLS: the host is checked with the authority of the server's certificate, and
// with another authority the error is one line.
func TestCertificatesForPostgreSQL(t *testing.T) {
	t.Parallel()
	ours, theirs := servers.SelfSigned(t), servers.SelfSigned(t)
	server, client := ours.Sign(t), ours.Sign(t)
	d := servers.PostgreSQLServer(t, server.Cert, server.Key).Database(t)
	plain := dsn("postgres", d)
	for name, c := range map[string]struct {
		args []string
		want string // of the error
	}{
		"our authority":                              {[]string{"--database=" + plain + "?sslmode=verify-full", "--database-ca=" + ours.Cert}, "no tables"},
		"our authority by default":                   {[]string{"--database=" + plain, "--database-ca=" + ours.Cert}, "no tables"},
		"our authority in the DSN":                   {[]string{"--database=" + plain + "?sslmode=verify-full&sslrootcert=" + ours.Cert}, "no tables"},
		"our authority, and a certificate":           {[]string{"--database=" + plain, "--database-ca=" + ours.Cert, "--database-cert=" + client.Cert, "--database-key=" + client.Key}, "no tables"},
		"another authority":                          {[]string{"--database=" + plain + "?sslmode=verify-full", "--database-ca=" + theirs.Cert}, "unknown authority"},
		"another authority, the name is not checked": {[]string{"--database=" + plain + "?sslmode=verify-ca", "--database-ca=" + theirs.Cert}, "unknown authority"},
		"the system's authorities":                   {[]string{"--database=" + plain + "?sslmode=verify-full"}, "unknown authority"},
	} {
		code, _, stderr := run(t.Context(), nil, append([]string{"winners"}, c.args...)...)
		if code != cli.Unseen || !strings.Contains(stderr, c.want) || strings.Contains(stderr, d.Password) || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
			t.Errorf("%s: exit code %d, want one line with %q\n%s", name, code, c.want, stderr)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Clean(to), data, 0o600); err != nil {
		t.Fatal(err)
	}
}
