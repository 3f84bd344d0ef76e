package cli_test

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// follow starts a process, which is killed at the end of the test, and returns a function that
// waits for its next line.
func follow(t *testing.T, cmd *exec.Cmd) (next func() string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return func() string {
		t.Helper()
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatal("the process has ended")
			}
			return line
		case <-time.After(testenv.Patience):
			t.Fatal("no line")
		}
		return ""
	}
}
