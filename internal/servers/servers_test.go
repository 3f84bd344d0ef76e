package servers_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/servers"
)

// deadline ends waits that would otherwise never end. No test measures a duration
// against it.
const deadline = 2 * time.Minute

func TestRedisKeepsAcknowledgedWritesThroughKill(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, "appendonly yes", "appendfsync always")
	addr, pid := s.Addr(), s.Pid()
	command(t, addr, "SET kept 1", "+OK")
	s.Kill()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Fatal("the port still answers after Kill")
	}
	s.Restart(t)
	if s.Addr() != addr {
		t.Fatalf("restarted on %s, was on %s", s.Addr(), addr)
	}
	if s.Pid() == pid {
		t.Fatalf("the process is still %d after Kill and Restart", pid)
	}
	command(t, addr, "EXISTS kept", ":1")
	s.Stop()
	s.Restart(t)
	command(t, addr, "EXISTS kept", ":1")
}

func TestRedisForgetsWithoutPersistence(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t)
	command(t, s.Addr(), "SET gone 1", "+OK")
	s.Restart(t)
	command(t, s.Addr(), "EXISTS gone", ":0")
}

func TestRedisPausedAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t)
	conn := dial(t, s.Addr())
	s.Pause()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	// The kernel accepts the bytes, but the server is stopped. So no answer can arrive,
	// however long this waits.
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var one [1]byte
	if n, err := conn.Read(one[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a paused server answered: %d bytes, %v", n, err)
	}
	s.Resume()
	if err := conn.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "+PONG\r\n" {
		t.Fatalf("after Resume the answer was %q, %v", line, err)
	}
}

func TestRedisOptionsAreLinesOfItsConfiguration(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, "requirepass open-sesame", "maxclients 17")
	conn := dial(t, s.Addr())
	if _, err := io.WriteString(conn, "AUTH open-sesame\r\nCONFIG GET maxclients\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	var got []string
	for range 6 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, strings.TrimSpace(line))
	}
	if want := "+OK *2 $10 maxclients $2 17"; strings.Join(got, " ") != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestFolderAndServerEndWithTheTest(t *testing.T) {
	t.Parallel()
	var s *servers.RedisServer
	t.Run("owner", func(t *testing.T) { s = servers.Redis(t) })
	if s == nil {
		t.Skip("the server's absence is recorded by the subtest")
	}
	if alive(s.Pid()) {
		t.Errorf("redis-server %d outlived its test", s.Pid())
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory outlived its test: %v", err)
	}
}

func TestDatabasesAreFreshAndApart(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]struct {
		fresh func(testing.TB) servers.SQL
		query func(servers.SQL, string) *exec.Cmd
	}{
		"MariaDB":    {servers.MariaDB, mariadb},
		"PostgreSQL": {servers.PostgreSQL, psql},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := database.fresh(t)
			// A shared server and its directory must not depend on anything that a test holds.
			for range 5 {
				runtime.GC()
			}
			b := database.fresh(t)
			if a.Database == b.Database || a.User == b.User {
				t.Fatalf("two calls returned the same database or user: %s, %s", a.Database, b.Database)
			}
			if a.Port != b.Port {
				t.Errorf("two calls in one process started two servers, on ports %d and %d", a.Port, b.Port)
			}
			for _, db := range []servers.SQL{a, b} {
				if out, err := database.query(db, "CREATE TABLE only_here (id INT)").CombinedOutput(); err != nil {
					t.Fatalf("a user in its own database: %v: %s", err, out)
				}
			}
			b.Database = a.Database
			if out, err := database.query(b, "DROP TABLE only_here").CombinedOutput(); err == nil {
				t.Errorf("a user dropped a table of another user's database: %s", out)
			}
			a.Password += "x"
			if out, err := database.query(a, "SELECT 1").CombinedOutput(); err == nil {
				t.Errorf("a wrong password was accepted: %s", out)
			}
		})
	}
}

func TestMariaDBServerKeepsCommitsThroughKill(t *testing.T) {
	t.Parallel()
	s := servers.MariaDBServer(t, "--max-connections=20")
	db := s.Database(t)
	if out, err := mariadb(db, "CREATE TABLE t (id INT); INSERT INTO t VALUES (1)").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Kill()
	s.Restart(t)
	out, err := mariadb(db, "SELECT COUNT(*), @@max_connections FROM t").CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "1 20" {
		t.Fatalf("after Kill and Restart: %q, %v; want 1 row and 20 connections", got, err)
	}
}

// A test process that is killed runs no cleanups. Its servers and their directories must
// still be removed. The child process runs this same test.
func TestServersDieWithAKilledTestProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv("NOONLOCK_SERVERS_CHILD") == "1" {
		redis, mariaDB := servers.Redis(t), servers.MariaDBServer(t)
		shared := servers.PostgreSQL(t)
		fmt.Printf("started %d %s %d %s %d\n", redis.Pid(), redis.Dir(), mariaDB.Pid(), mariaDB.Dir(), shared.Port)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			t.Error(err)
		}
		t.Fatal("the parent ended without killing this process")
	}
	// If a server is missing, skip here, since a skip in the child would go unnoticed.
	servers.Redis(t)
	servers.MariaDB(t)
	servers.PostgreSQL(t)

	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "NOONLOCK_SERVERS_CHILD=1")
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int
	var dirs [2]string
	var port int
	var said []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		said = append(said, lines.Text())
		if n, _ := fmt.Sscanf(lines.Text(), "started %d %s %d %s %d", &pids[0], &dirs[0], &pids[1], &dirs[1], &port); n == 5 {
			break
		}
	}
	if port == 0 {
		t.Fatalf("the child started no server (%v); its output:\n%s", child.Wait(), strings.Join(said, "\n"))
	}
	postmaster := "127.0.0.1:" + strconv.Itoa(port)
	if !alive(pids[0]) || !alive(pids[1]) || !listens(postmaster) {
		t.Fatal("not all of the child's servers ran before the kill")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
	eventually(t, "redis-server ends", func() bool { return !alive(pids[0]) })
	eventually(t, "mariadbd ends", func() bool { return !alive(pids[1]) })
	eventually(t, "postgres ends", func() bool { return !listens(postmaster) })
	for _, dir := range dirs {
		eventually(t, "the directory "+dir+" is removed", func() bool {
			_, err := os.Stat(dir)
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// A missing server has the same effect for every kind of server, so this tests one. The
// child process runs this same test with an empty PATH.
func TestMissingServerSkipsOrFails(t *testing.T) {
	t.Parallel()
	if os.Getenv("NOONLOCK_SERVERS_CHILD") == "1" {
		servers.Redis(t)
		return
	}
	without := func(required string) (string, error) {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), "NOONLOCK_SERVERS_CHILD=1", "PATH=/nonexistent", "NOONLOCK_REDIS_SERVER=",
			"NOONLOCK_REQUIRE_SERVERS="+required)
		out, err := child.CombinedOutput()
		return string(out), err
	}
	if out, err := without(""); err != nil || !strings.Contains(out, "--- SKIP: "+t.Name()) || !strings.Contains(out, "needs redis-server") {
		t.Errorf("not required: %v\n%s", err, out)
	}
	if out, err := without("1"); err == nil || !strings.Contains(out, "--- FAIL: "+t.Name()) {
		t.Errorf("required: %v\n%s", err, out)
	}
}

func mariadb(db servers.SQL, text string) *exec.Cmd {
	cmd := exec.Command("mariadb", "--no-defaults", "--protocol=tcp", "--host="+db.Host, "--port="+strconv.Itoa(db.Port),
		"--user="+db.User, "--skip-column-names", "--execute="+text, db.Database)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+db.Password)
	return cmd
}

func psql(db servers.SQL, text string) *exec.Cmd {
	cmd := exec.Command("psql", "--no-psqlrc", "--host="+db.Host, "--port="+strconv.Itoa(db.Port),
		"--username="+db.User, "--command="+text, db.Database)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+db.Password)
	return cmd
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func command(t *testing.T, addr, line, want string) {
	t.Helper()
	conn := dial(t, addr)
	if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || got != want+"\r\n" {
		t.Fatalf("%s: got %q, %v; want %q", line, got, err, want)
	}
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// alive reports false for a zombie, since its parent may be another process.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return !strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	give := time.After(deadline)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-give:
			t.Fatalf("timed out after %v waiting until %s", deadline, what)
		}
	}
}
