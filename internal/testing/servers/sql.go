package servers

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// SQL is the address of a new database and the account of its owner, who has all rights in
// it and none outside it. The password consists of letters and digits, so a DSN needs no
// quoting.
type SQL struct {
	Host string
	Port int

	User, Password, Database string
}

// SQLServer is a database server that belongs to one test, which can kill, pause or
// restart it. Its methods are safe for concurrent use.
type SQLServer struct {
	*process
	engine   *engine
	programs programs
	password string // of the administrator
}

// admin is the account that creates databases and users.
const admin = "noonlock_admin"

// Administer executes statements as the administrator.
func (s *SQLServer) Administer(tb testing.TB, statements ...string) {
	tb.Helper()
	must(tb, s.execute(s.port, statements))
}

// Database creates a database and a user for it. Both exist as long as the server.
func (s *SQLServer) Database(tb testing.TB) SQL {
	tb.Helper()
	name, password := "n_"+strings.ToLower(rand.Text()), rand.Text()
	s.Administer(tb, s.engine.createStatements(name, password)...)
	return SQL{Host: "127.0.0.1", Port: s.port, User: name, Password: password, Database: name}
}

// execute executes statements as the administrator.
func (s *SQLServer) execute(port int, statements []string) error {
	client := exec.Command(s.programs.client, s.engine.clientArgs(port, statements)...)
	// The password is no argument, since every user of the machine can read arguments.
	client.Env = append(os.Environ(), "MYSQL_PWD="+s.password, "PGPASSWORD="+s.password)
	return run(client)
}

// programs are the paths of the programs of an engine. A missing program has "".
type programs struct{ server, installer, client string }

// engine is a kind of database server.
type engine struct {
	name, debianPackage string
	deathSignal         syscall.Signal
	find                func() programs
	// prepare installs the data and sets argv.
	prepare          func(s *SQLServer, opts []string) error
	clientArgs       func(port int, statements []string) []string
	createStatements func(name, password string) []string // they create a database and its user

	mu     sync.Mutex
	shared *SQLServer // server that all tests of this process share; no test can own it
}

// database returns a new database on the shared server.
func (k *engine) database(tb testing.TB) SQL {
	tb.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shared == nil {
		k.shared = k.start(tb, nil)
	}
	return k.shared.Database(tb)
}

// start starts a server. Without the programs of the engine, it ends the test.
func (k *engine) start(tb testing.TB, opts []string) *SQLServer {
	tb.Helper()
	p := k.find()
	if p.server == "" || p.installer == "" || p.client == "" {
		missing(tb, k.name, k.debianPackage)
	}
	s := &SQLServer{&process{name: k.name, deathSignal: k.deathSignal}, k, p, rand.Text()}
	// If another server has taken the port, this login fails.
	s.ready = func(port int) error { return s.execute(port, []string{"SELECT 1"}) }
	must(tb, s.begin("", func() error { return k.prepare(s, opts) }))
	return s
}

// MariaDB returns a new database on a server that all tests of this process share. The
// first call starts the server.
func MariaDB(tb testing.TB) SQL {
	tb.Helper()
	return mariaDB.database(tb)
}

// MariaDBServer starts a mariadbd for this test alone. Commits are durable, as by default.
// opts are additional arguments such as "--max-connections=20".
func MariaDBServer(tb testing.TB, opts ...string) *SQLServer {
	tb.Helper()
	s := mariaDB.start(tb, opts)
	s.endWith(tb)
	return s
}

// PostgreSQL returns a new database on a server that all tests of this process share. The
// first call starts the server.
func PostgreSQL(tb testing.TB) SQL {
	tb.Helper()
	return postgreSQL.database(tb)
}

var mariaDB = &engine{
	name: "mariadbd", debianPackage: "mariadb-server", deathSignal: syscall.SIGKILL,
	find: func() programs {
		folders := []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"}
		return programs{find(folders, "mariadbd"), find(folders, "mariadb-install-db"), find(folders, "mariadb")}
	},
	prepare: func(s *SQLServer, opts []string) error {
		temp, initFile := filepath.Join(s.dir, "tmp"), filepath.Join(s.dir, "init.sql")
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
		// Each server needs its own directory for temporary tables: at its start, it removes all tables there.
		shared := []string{"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--tmpdir=" + temp, "--innodb-log-file-size=16M"}
		if os.Geteuid() == 0 {
			shared = append(shared, "--user=root") // mariadbd runs as root only if this is explicit
		}
		s.argv = func(port int) []string {
			return slices.Concat([]string{s.programs.server}, shared, []string{
				"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
				"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
				"--init-file=" + initFile, "--skip-name-resolve", "--innodb-buffer-pool-size=32M",
			}, opts)
		}
		install := exec.Command(s.programs.installer, append(shared, "--skip-test-db")...)
		install.Dir = s.dir
		return run(install)
	},
	clientArgs: func(port int, statements []string) []string {
		return []string{
			"--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=" + strconv.Itoa(port), "--user=" + admin,
			"--execute=" + strings.Join(statements, "; "),
		}
	},
	createStatements: func(name, password string) []string {
		return []string{
			"CREATE DATABASE " + name,
			fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", name, password),
			fmt.Sprintf("GRANT ALL ON %[1]s.* TO %[1]s@'%%' WITH GRANT OPTION", name),
		}
	},
}

var postgreSQL = &engine{
	// At SIGQUIT, postgres ends immediately, but first removes its shared memory. SIGKILL would leave it behind, because
	// it is outside the directory.
	name: "postgres", debianPackage: "postgresql", deathSignal: syscall.SIGQUIT,
	find: func() programs {
		install := find([]string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}, "initdb")
		// The other programs must be in the same directory, so that their versions agree. In PATH, psql may be a wrapper
		// for another version.
		target, err := filepath.EvalSymlinks(install)
		if err != nil {
			return programs{}
		}
		folder := filepath.Dir(target)
		return programs{find(nil, filepath.Join(folder, "postgres")), install, find(nil, filepath.Join(folder, "psql"))}
	},
	prepare: func(s *SQLServer, _ []string) error {
		data, passwordFile := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "password")
		if err := os.WriteFile(passwordFile, []byte(s.password+"\n"), 0o600); err != nil {
			return err
		}
		settings := []string{"dynamic_shared_memory_type=mmap", "shared_buffers=16MB", "listen_addresses=127.0.0.1", "unix_socket_directories="}
		if err := s.dropRoot(); err != nil {
			return fmt.Errorf("postgres does not run as root: %w", err)
		}
		s.argv = func(port int) []string {
			argv := []string{s.programs.server, "-D", data, "-c", "port=" + strconv.Itoa(port)}
			for _, setting := range settings {
				argv = append(argv, "-c", setting)
			}
			return argv
		}
		install := exec.Command(s.programs.installer, "--pgdata="+data, "--username="+admin, "--pwfile="+passwordFile,
			"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
		install.Dir = s.dir
		install.SysProcAttr = attributes(s.credential, 0)
		return run(install)
	},
	clientArgs: func(port int, statements []string) []string {
		argv := []string{
			"--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--host=127.0.0.1",
			"--port=" + strconv.Itoa(port), "--username=" + admin, "--dbname=postgres",
		}
		for _, statement := range statements {
			argv = append(argv, "--command="+statement)
		}
		return argv
	},
	createStatements: func(name, password string) []string {
		return []string{
			fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, password),
			fmt.Sprintf("CREATE DATABASE %[1]s OWNER %[1]s", name),
		}
	},
}

// dropRoot makes the server run as another user if the test runs as root. That user, postgres or nobody, then owns the
// directory.
func (p *process) dropRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return err
	}
	uid, _ := strconv.ParseUint(account.Uid, 10, 32) // on Unix, each id is a number
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	p.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(path, int(uid), int(gid))
		}
		return err
	})
}
