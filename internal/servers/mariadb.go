package servers

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// sharedMariaDB and sharedPostgreSQL are the only state of this package. No test can own a
// server that all tests of a process share.
var sharedMariaDB = sync.OnceValues(func() (*SQLServer, error) {
	return startMariaDB(findMariaDB(), nil)
})

// MariaDB returns a new database on a server that all tests of this process share. The
// first call starts the server.
func MariaDB(tb testing.TB) SQL {
	tb.Helper()
	requireMariaDB(tb)
	s, err := sharedMariaDB()
	if err != nil {
		tb.Fatalf("starting: %v", err)
	}
	return s.Database(tb)
}

// MariaDBServer starts a mariadbd for this test alone. Commits are durable, as by default.
// opts are additional arguments such as "--max-connections=20".
func MariaDBServer(tb testing.TB, opts ...string) *SQLServer {
	tb.Helper()
	requireMariaDB(tb)
	s, err := startMariaDB(findMariaDB(), opts)
	if err != nil {
		tb.Fatalf("starting: %v", err)
	}
	s.endWith(tb)
	return s
}

// mariaDBPrograms are the programs of one installation; "" if missing.
type mariaDBPrograms struct{ server, install, client string }

func findMariaDB() mariaDBPrograms {
	folders := []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"}
	return mariaDBPrograms{
		server:  find(folders, "mariadbd"),
		install: find(folders, "mariadb-install-db"),
		client:  find(folders, "mariadb"),
	}
}

func requireMariaDB(tb testing.TB) {
	tb.Helper()
	if p := findMariaDB(); p.server == "" || p.install == "" || p.client == "" {
		missing(tb, "mariadbd", "mariadb-server")
	}
}

func startMariaDB(programs mariaDBPrograms, opts []string) (*SQLServer, error) {
	dir, remove, err := folder("mariadb")
	if err != nil {
		return nil, fmt.Errorf("mariadbd: %w", err)
	}
	s := &SQLServer{
		process: &process{
			name: "mariadbd", dir: dir, removeFolder: remove,
			stopSignal: syscall.SIGTERM, deathSignal: syscall.SIGKILL,
		},
		password: rand.Text(),
	}
	if err := s.prepareMariaDB(programs, opts); err != nil {
		remove()
		return nil, err
	}
	if err := s.launch(); err != nil {
		remove()
		return nil, err
	}
	return s, nil
}

func (s *SQLServer) prepareMariaDB(programs mariaDBPrograms, opts []string) error {
	data, temp, initFile := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "tmp"), filepath.Join(s.dir, "init.sql")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	// The server runs these statements before it accepts connections. The built-in root
	// account stays restricted to the owner of the socket.
	statements := fmt.Sprintf("CREATE USER IF NOT EXISTS %[1]s@'%%' IDENTIFIED BY '%[2]s';\n"+
		"GRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;\n", admin, s.password)
	if err := os.WriteFile(initFile, []byte(statements), 0o600); err != nil {
		return err
	}
	// A separate directory for temporary tables is required: a server that starts removes
	// those of other servers in its directory.
	common := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + temp, "--innodb-log-file-size=16M"}
	if os.Geteuid() == 0 {
		// mariadbd runs as root only if this is explicit.
		common = append(common, "--user=root")
	}
	install := exec.Command(programs.install, append(common, "--skip-test-db")...)
	install.Dir = s.dir
	if err := run(install); err != nil {
		return err
	}
	s.argv = func(port int) []string {
		argv := append([]string{programs.server}, common...)
		argv = append(
			argv,
			"--bind-address=127.0.0.1", "--port="+strconv.Itoa(port),
			"--socket="+filepath.Join(s.dir, "socket"), "--pid-file="+filepath.Join(s.dir, "pid"),
			"--init-file="+initFile, "--skip-name-resolve", "--innodb-buffer-pool-size=32M",
		)
		return append(argv, opts...)
	}
	query := func(port int, text string) error {
		client := exec.Command(programs.client, "--no-defaults", "--protocol=tcp", "--host=127.0.0.1",
			"--port="+strconv.Itoa(port), "--user="+admin, "--execute="+text)
		// Not an argument, since every user of the machine can read arguments.
		client.Env = append(os.Environ(), "MYSQL_PWD="+s.password)
		return run(client)
	}
	// If another server has taken the port, this login fails.
	s.ready = func(port int) error { return query(port, "SELECT 1") }
	s.order = func(statement string) error { return query(s.port, statement) }
	s.create = func(name, password string) error {
		return query(s.port, fmt.Sprintf("CREATE DATABASE %[1]s; CREATE USER %[1]s@'%%' IDENTIFIED BY '%[2]s'; "+
			"CREATE USER %[1]s_r@'%%' IDENTIFIED BY '%[2]s'; "+
			"GRANT ALL ON %[1]s.* TO %[1]s@'%%' WITH GRANT OPTION", name, password))
	}
	return nil
}
