package servers

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
)

func TestFolderAndServerEndWithTheTest(t *testing.T) {
	t.Parallel()
	var s *RedisServer
	t.Run("owner", func(t *testing.T) { s = Redis(t) })
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
		redis, mariaDB := Redis(t), MariaDBServer(t)
		shared := PostgreSQL(t)
		fmt.Printf("started %d %s %d %s %d\n", redis.Pid(), redis.Dir(), mariaDB.Pid(), mariaDB.Dir(), shared.Port)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			t.Error(err)
		}
		t.Fatal("the parent ended without killing this process")
	}
	// If a server is missing, skip here, since a skip in the child would go unnoticed.
	Redis(t)
	MariaDB(t)
	PostgreSQL(t)

	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "NOONLOCK_SERVERS_CHILD=1")
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
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
	must(t, child.Process.Kill())
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
		Redis(t)
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
	if !poll(condition) {
		t.Fatalf("timed out waiting until %s", what)
	}
}

// Servers have different ports, also while one of them is stopped. No client could take one of these ports.
func TestPortsAreReserved(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 300 { // of 5000: without a reservation some would come twice
		port, free, err := reservePort()
		must(t, err)
		defer free()
		if seen[port] || seen[port-1] || port%2 != 0 || port+10001 >= 32768 {
			t.Fatalf("port %d: wanted an even one that is reserved for this call, with the bus below 32768", port)
		}
		seen[port] = true
	}
}
