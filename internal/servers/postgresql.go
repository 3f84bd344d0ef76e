package servers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

var sharedPostgreSQL = sync.OnceValues(func() (*SQLServer, error) {
	return startPostgreSQL(findPostgreSQL(), "", "")
})

// PostgreSQL returns a new database on a server that all tests of this process share. The
// first call starts the server.
func PostgreSQL(tb testing.TB) SQL {
	tb.Helper()
	requirePostgreSQL(tb)
	s, err := sharedPostgreSQL()
	if err != nil {
		tb.Fatalf("starting: %v", err)
	}
	return s.Database(tb)
}

// PostgreSQLServer starts a server with TLS for one test, with a certificate and its key in
// these files. It ends with the test.
func PostgreSQLServer(tb testing.TB, cert, key string) *SQLServer {
	tb.Helper()
	requirePostgreSQL(tb)
	s, err := startPostgreSQL(findPostgreSQL(), cert, key)
	if err != nil {
		tb.Fatalf("starting: %v", err)
	}
	s.endWith(tb)
	return s
}

// postgreSQLPrograms are the programs of one installation; "" if missing.
type postgreSQLPrograms struct{ server, install, client string }

func findPostgreSQL() postgreSQLPrograms {
	folders := []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}
	p := postgreSQLPrograms{install: find(folders, "initdb")}
	// The other programs must be in the same directory, so that their versions agree. PATH
	// may contain a link to one of them and a wrapper for another version of the next.
	target, err := filepath.EvalSymlinks(p.install)
	if err != nil {
		return postgreSQLPrograms{}
	}
	p.server = find(nil, filepath.Join(filepath.Dir(target), "postgres"))
	p.client = find(nil, filepath.Join(filepath.Dir(target), "psql"))
	return p
}

func requirePostgreSQL(tb testing.TB) {
	tb.Helper()
	if p := findPostgreSQL(); p.server == "" || p.install == "" || p.client == "" {
		missing(tb, "postgres", "postgresql")
	}
}

func startPostgreSQL(programs postgreSQLPrograms, cert, key string) (*SQLServer, error) {
	dir, remove, err := folder("postgres")
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &SQLServer{
		// At SIGQUIT, postgres ends immediately but removes its shared memory first, which
		// is outside the directory.
		process: &process{
			name: "postgres", dir: dir, removeFolder: remove,
			stopSignal: syscall.SIGINT, deathSignal: syscall.SIGQUIT,
		},
		password: rand.Text(),
	}
	if err := s.preparePostgreSQL(programs, cert, key); err != nil {
		remove()
		return nil, err
	}
	if err := s.launch(); err != nil {
		remove()
		return nil, err
	}
	return s, nil
}

func (s *SQLServer) preparePostgreSQL(programs postgreSQLPrograms, cert, key string) error {
	data, passwordFile := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	own := []string{s.dir, passwordFile}
	settings := []string{"dynamic_shared_memory_type=mmap", "shared_buffers=16MB"}
	if cert != "" {
		settings = append(settings, "ssl=on")
		for setting, file := range map[string]string{"ssl_cert_file": cert, "ssl_key_file": key} {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			file = filepath.Join(s.dir, setting) // postgres refuses a key that another user owns
			if err := os.WriteFile(file, text, 0o600); err != nil {
				return err
			}
			own, settings = append(own, file), append(settings, setting+"="+file)
		}
	}
	if os.Geteuid() == 0 {
		credential, err := unprivileged()
		if err != nil {
			return fmt.Errorf("postgres does not run as root: %w", err)
		}
		for _, path := range own {
			if err := os.Chown(path, int(credential.Uid), int(credential.Gid)); err != nil {
				return err
			}
		}
		s.credential = credential
	}
	install := exec.Command(programs.install, "--pgdata="+data, "--username="+admin, "--pwfile="+passwordFile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
	install.Dir = s.dir
	install.SysProcAttr = attributes(s.credential, 0)
	if err := run(install); err != nil {
		return err
	}
	s.argv = func(port int) []string {
		argv := []string{programs.server, "-D", data}
		for _, setting := range append(settings, "listen_addresses=127.0.0.1", "port="+strconv.Itoa(port), "unix_socket_directories=") {
			argv = append(argv, "-c", setting)
		}
		return argv
	}
	query := func(port int, text ...string) error {
		argv := []string{
			"--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--host=127.0.0.1",
			"--port=" + strconv.Itoa(port), "--username=" + admin, "--dbname=postgres",
		}
		for _, statement := range text {
			argv = append(argv, "--command="+statement)
		}
		client := exec.Command(programs.client, argv...)
		// Not an argument, since every user of the machine can read arguments.
		client.Env = append(os.Environ(), "PGPASSWORD="+s.password)
		return run(client)
	}
	// If another server has taken the port, this login fails.
	s.ready = func(port int) error { return query(port, "SELECT 1") }
	s.order = func(statement string) error { return query(s.port, statement) }
	s.create = func(name, password string) error {
		return query(s.port,
			fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, password),
			fmt.Sprintf("CREATE ROLE %s_r LOGIN PASSWORD '%s'", name, password),
			fmt.Sprintf("CREATE DATABASE %[1]s OWNER %[1]s", name))
	}
	return nil
}

// unprivileged returns the account postgres or nobody, whichever exists.
func unprivileged() (*syscall.Credential, error) {
	var failed error
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, failed
}
