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
	Host     string
	Port     int
	User     string
	Password string
	Database string
}

// SQLServer is a database server that belongs to one test, which can kill, pause or
// restart it. Its methods are safe for concurrent use.
type SQLServer struct {
	*process
	engine   *engine
	programs []string
	password string // of the administrator
}

// admin is the account that creates databases and users.
const admin = "noonlock_admin"

// Administer executes a statement as the administrator.
func (s *SQLServer) Administer(tb testing.TB, statement string) {
	tb.Helper()
	if err := s.order(s.port, statement); err != nil {
		tb.Fatalf("%s: %s: %v", s.name, statement, err)
	}
}

// Database creates a database and a user for it. Both exist as long as the server.
func (s *SQLServer) Database(tb testing.TB) SQL {
	tb.Helper()
	name, password := "n_"+strings.ToLower(rand.Text()), rand.Text()
	if err := s.order(s.port, s.engine.create(name, password)...); err != nil {
		tb.Fatalf("%s: creating a database: %v", s.name, err)
	}
	return SQL{Host: "127.0.0.1", Port: s.port, User: name, Password: password, Database: name}
}

func (s *SQLServer) order(port int, statements ...string) error {
	client := exec.Command(s.programs[2], s.engine.client(port, statements)...)
	// Not an argument, since every user of the machine can read arguments.
	client.Env = append(os.Environ(), s.engine.secret+"="+s.password)
	return run(client)
}

// engine is a kind of database server.
type engine struct {
	name, debianPackage string
	secret              string // the client's variable for the password
	stop, death         syscall.Signal
	programs            func() []string // the server, what installs its data, and its client; "" for a missing program
	// prepare installs the data and sets argv.
	prepare func(s *SQLServer, opts []string) error
	client  func(port int, statements []string) []string // the arguments of the client
	create  func(name, password string) []string         // the statements that create a database and its user

	// shared is a server that all tests of this process share. No test can own it.
	once   sync.Once
	shared *SQLServer
	failed error
}

// found returns the programs of the engine. Without them, it ends the test.
func (k *engine) found(tb testing.TB) []string {
	tb.Helper()
	programs := k.programs()
	if slices.Contains(programs, "") {
		missing(tb, k.name, k.debianPackage)
	}
	return programs
}

// dedicated starts a server for one test.
func (k *engine) dedicated(tb testing.TB, opts ...string) *SQLServer {
	tb.Helper()
	s, err := k.start(k.found(tb), opts)
	if err != nil {
		tb.Fatalf("starting: %v", err)
	}
	s.endWith(tb)
	return s
}

// database returns a new database on the shared server.
func (k *engine) database(tb testing.TB) SQL {
	tb.Helper()
	programs := k.found(tb)
	k.once.Do(func() { k.shared, k.failed = k.start(programs, nil) })
	if k.failed != nil {
		tb.Fatalf("starting: %v", k.failed)
	}
	return k.shared.Database(tb)
}

func (k *engine) start(programs, opts []string) (*SQLServer, error) {
	dir, remove, err := folder(k.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	s := &SQLServer{
		process: &process{name: k.name, dir: dir, removeFolder: remove, stopSignal: k.stop, deathSignal: k.death},
		engine:  k, programs: programs, password: rand.Text(),
	}
	// If another server has taken the port, this login fails.
	s.ready = func(port int) error { return s.order(port, "SELECT 1") }
	if err = k.prepare(s, opts); err == nil {
		err = s.launch()
	}
	if err != nil {
		remove()
		return nil, err
	}
	return s, nil
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
	return mariaDB.dedicated(tb, opts...)
}

// PostgreSQL returns a new database on a server that all tests of this process share. The
// first call starts the server.
func PostgreSQL(tb testing.TB) SQL {
	tb.Helper()
	return postgreSQL.database(tb)
}

var mariaDB = &engine{
	name: "mariadbd", debianPackage: "mariadb-server", secret: "MYSQL_PWD", stop: syscall.SIGTERM, death: syscall.SIGKILL,
	programs: func() (all []string) {
		for _, name := range []string{"mariadbd", "mariadb-install-db", "mariadb"} {
			all = append(all, find([]string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"}, name))
		}
		return all
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
		// A separate directory for temporary tables is required: a server that starts removes
		// the tables of other servers in its directory.
		shared := []string{"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--tmpdir=" + temp, "--innodb-log-file-size=16M"}
		if os.Geteuid() == 0 {
			shared = append(shared, "--user=root") // mariadbd runs as root only if this is explicit
		}
		s.argv = func(port int) []string {
			return slices.Concat([]string{s.programs[0]}, shared, []string{
				"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
				"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
				"--init-file=" + initFile, "--skip-name-resolve", "--innodb-buffer-pool-size=32M",
			}, opts)
		}
		install := exec.Command(s.programs[1], append(shared, "--skip-test-db")...)
		install.Dir = s.dir
		return run(install)
	},
	client: func(port int, statements []string) []string {
		return []string{
			"--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=" + strconv.Itoa(port), "--user=" + admin,
			"--execute=" + strings.Join(statements, "; "),
		}
	},
	create: func(name, password string) []string {
		return []string{
			"CREATE DATABASE " + name,
			fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", name, password),
			fmt.Sprintf("GRANT ALL ON %[1]s.* TO %[1]s@'%%' WITH GRANT OPTION", name),
		}
	},
}

var postgreSQL = &engine{
	// At SIGQUIT, postgres ends immediately but removes its shared memory first, which
	// is outside the directory.
	name: "postgres", debianPackage: "postgresql", secret: "PGPASSWORD", stop: syscall.SIGINT, death: syscall.SIGQUIT,
	programs: func() []string {
		install := find([]string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}, "initdb")
		// The other programs must be in the same directory, so that their versions agree. PATH
		// may contain a link to one of them and a wrapper for another version of the next.
		target, err := filepath.EvalSymlinks(install)
		if err != nil {
			return []string{""}
		}
		folder := filepath.Dir(target)
		return []string{find(nil, filepath.Join(folder, "postgres")), install, find(nil, filepath.Join(folder, "psql"))}
	},
	prepare: func(s *SQLServer, _ []string) error {
		data, passwordFile := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "password")
		if err := os.WriteFile(passwordFile, []byte(s.password+"\n"), 0o600); err != nil {
			return err
		}
		settings := []string{"dynamic_shared_memory_type=mmap", "shared_buffers=16MB", "listen_addresses=127.0.0.1", "unix_socket_directories="}
		if err := s.unprivileged(); err != nil {
			return fmt.Errorf("postgres does not run as root: %w", err)
		}
		s.argv = func(port int) []string {
			argv := []string{s.programs[0], "-D", data, "-c", "port=" + strconv.Itoa(port)}
			for _, setting := range settings {
				argv = append(argv, "-c", setting)
			}
			return argv
		}
		install := exec.Command(s.programs[1], "--pgdata="+data, "--username="+admin, "--pwfile="+passwordFile,
			"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
		install.Dir = s.dir
		install.SysProcAttr = attributes(s.credential, 0)
		return run(install)
	},
	client: func(port int, statements []string) []string {
		argv := []string{
			"--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--host=127.0.0.1",
			"--port=" + strconv.Itoa(port), "--username=" + admin, "--dbname=postgres",
		}
		for _, statement := range statements {
			argv = append(argv, "--command="+statement)
		}
		return argv
	},
	create: func(name, password string) []string {
		return []string{
			fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, password),
			fmt.Sprintf("CREATE DATABASE %[1]s OWNER %[1]s", name),
		}
	},
}

// unprivileged makes root run the server as postgres or nobody, who get its directory.
func (p *process) unprivileged() error {
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
	uid, _ := strconv.ParseUint(account.Uid, 10, 32) // Unix systems have numbers
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	p.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(path, int(uid), int(gid))
		}
		return err
	})
}
