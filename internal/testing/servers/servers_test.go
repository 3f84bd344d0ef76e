package servers_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// deadline ends waits that would otherwise never end. No test measures a duration
// against it.
const deadline = 2 * time.Minute

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
	testenv.Must(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, child.Start())
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
	testenv.Must(t, child.Process.Kill())
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
