package cli_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	"github.com/noonlock/noonlock/internal/servers"
)

// notEncoded is a password that cannot stand in a URL as it is.
const notEncoded = `p@ss/word:%41?#&+ 1`

// A password of Redis that is set apart from the URL needs no percent-encoding.
func TestPasswordOfRedis(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	redis.RequireUserAuth("noon", notEncoded)
	r := serve(t, "--redis=redis://"+redis.Addr(), "--redis-username=noon", "--redis-password="+notEncoded, "--winners=3", "--schedule=@every 100ms",
		"--database=sqlite:"+filepath.Join(t.TempDir(), "lottery.db"), "--entrants="+write(t, "entrants.csv", fiveEntrants))
	r.await("draw committed", 1)
	if code := r.end(); code != cli.Done {
		t.Errorf("exit code %d\n%s", code, r.logs)
	}
}

// The password of the Sentinels is sent to them.
func TestPasswordOfSentinels(t *testing.T) {
	t.Parallel()
	sentinel, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sentinel.Close() })
	r := serve(t, "--redis=redis+sentinel://"+sentinel.Addr().String()+"?master=m", "--redis-sentinel-password="+notEncoded, "--winners=3",
		"--database=sqlite:"+filepath.Join(t.TempDir(), "lottery.db"), "--entrants="+write(t, "entrants.csv", fiveEntrants))
	conn, err := sentinel.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for b := make([]byte, 4096); !bytes.Contains(got, []byte(notEncoded)); {
		n, err := conn.Read(b)
		if got = append(got, b[:n]...); err != nil {
			t.Errorf("the connection ended after %q: %v", got, err)
			break
		}
	}
	_ = conn.Close()
	r.end()
}

// A password of the database that is set apart from the DSN needs no percent-encoding.
func TestPasswordOfTheDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fresh                  func(testing.TB) servers.SQL
		scheme, driver, source string
		change                 string
	}{
		"MariaDB":    {servers.MariaDB, "mysql", "mysql", "%s:%s@tcp(%s:%d)/%s", "SET PASSWORD = PASSWORD('%s')"},
		"PostgreSQL": {servers.PostgreSQL, "postgres", "pgx", "postgres://%s:%s@%s:%d/%s", "ALTER ROLE CURRENT_USER PASSWORD '%s'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := c.fresh(t)
			db, err := sql.Open(c.driver, fmt.Sprintf(c.source, d.User, d.Password, d.Host, d.Port, d.Database))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.ExecContext(t.Context(), fmt.Sprintf(c.change, notEncoded)); err != nil {
				t.Fatal(err)
			}
			without := strings.Replace(dsn(c.scheme, d), ":"+d.Password+"@", "@", 1)
			code, _, stderr := run(t.Context(), nil, "winners", "--database="+without, "--database-password="+notEncoded)
			if code != cli.Unseen || !strings.Contains(stderr, "no tables") {
				t.Errorf("exit code %d, %s; want that there are no tables", code, stderr)
			}
		})
	}
}
