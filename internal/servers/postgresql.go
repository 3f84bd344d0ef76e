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
	return startPostgreSQL(findPostgreSQL())
})

// PostgreSQL returns a fresh database on a server that all tests of this process
// share; the first call starts it.
func PostgreSQL(tb testing.TB) SQL {
	tb.Helper()
	requirePostgreSQL(tb)
	s, err := sharedPostgreSQL()
	if err != nil {
		tb.Fatalf("starting: %v", err)
	}
	return s.Database(tb)
}

// postgreSQLPrograms are the programs of one installation; empty where missing.
type postgreSQLPrograms struct{ server, install, client string }

func findPostgreSQL() postgreSQLPrograms {
	folders := []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}
	p := postgreSQLPrograms{install: find(folders, "initdb")}
	// The others from beside it, so that the versions agree: PATH may hold a
	// link to one and a wrapper that picks another version of the next.
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

func startPostgreSQL(programs postgreSQLPrograms) (*SQLServer, error) {
	dir, remove, err := folder("postgres")
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &SQLServer{
		// SIGQUIT has it end at once, but remove its shared memory first, which
		// belongs to the machine and not to the folder.
		process: &process{
			name: "postgres", dir: dir, removeFolder: remove,
			stopSignal: syscall.SIGINT, deathSignal: syscall.SIGQUIT,
		},
		password: rand.Text(),
	}
	if err := s.preparePostgreSQL(programs); err != nil {
		remove()
		return nil, err
	}
	if err := s.launch(); err != nil {
		remove()
		return nil, err
	}
	return s, nil
}

func (s *SQLServer) preparePostgreSQL(programs postgreSQLPrograms) error {
	data, passwordFile := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		credential, err := unprivileged()
		if err != nil {
			return fmt.Errorf("postgres does not run as root: %w", err)
		}
		for _, path := range []string{s.dir, passwordFile} {
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
		for _, setting := range []string{
			"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=",
			"dynamic_shared_memory_type=mmap", "shared_buffers=16MB",
		} {
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
		// Not an argument: those are open to every user of the machine.
		client.Env = append(os.Environ(), "PGPASSWORD="+s.password)
		return run(client)
	}
	// A stranger on our port does not know the password.
	s.ready = func(port int) error { return query(port, "SELECT 1") }
	s.create = func(name, password string) error {
		return query(s.port,
			fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, password),
			fmt.Sprintf("CREATE ROLE %s_r LOGIN PASSWORD '%s'", name, password),
			fmt.Sprintf("CREATE DATABASE %[1]s OWNER %[1]s", name))
	}
	return nil
}

// unprivileged returns an account that every system has one of.
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
