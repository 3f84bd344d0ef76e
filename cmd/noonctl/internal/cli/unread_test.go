//go:build unix

package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// unread returns files that take no output, and the other ends of pipes.
func unread(t *testing.T, why string) (stdout, stderr, readErr *os.File) {
	t.Helper()
	if why == "disk full" {
		file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("this system has no /dev/full")
		}
		t.Cleanup(func() { file.Close() })
		return file, file, nil
	}
	ends := make([]*os.File, 0, 4)
	for range 2 {
		read, write, err := os.Pipe()
		testenv.Must(t, err)
		ends = append(ends, read, write)
		t.Cleanup(func() { read.Close(); write.Close() })
		if why == "closed" {
			read.Close()
			continue
		}
		raw, err := write.SyscallConn()
		testenv.Must(t, err)
		testenv.Must(t, raw.Write(func(fd uintptr) bool {
			for buf := []byte(strings.Repeat(".\n", 2048)); err == nil; {
				_, err = syscall.Write(int(fd), buf) // until the pipe is full
			}
			return true
		}))
	}
	return ends[1], ends[3], ends[2]
}

// Nothing waits for output that nobody reads, and a pipe without a reader ends no program: runs of cron are recorded, a
// lost lease and a signal end run and elect in time. If somebody reads again, the number of dropped bytes stands in the output.
func TestFault63_141_NobodyReadsTheOutput(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"pipe full", "closed", "disk full"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			start := func(args ...string) (signal func(), code func() int, readErr *os.File) {
				cmd := e.program(args...)
				cmd.Stdout, cmd.Stderr, readErr = unread(t, why)
				testenv.Must(t, cmd.Start())
				t.Cleanup(func() { _ = cmd.Process.Kill() })
				return func() { testenv.Must(t, cmd.Process.Signal(syscall.SIGTERM)) }, func() int { return exitOf(t, cmd) }, readErr
			}
			const prints = "yes 2>/dev/null; exec sleep 600"
			runs := func(lock string) {
				e.Until("the command runs", func() bool { return !e.lockFree(lock) })
			}

			_, code, _ := start("run", "--lock", "orders", "--ttl", "5s", "--", "sh", "-c", prints)
			runs("orders")
			e.must("release", "orders", "--yes")
			if got := code(); got != 76 {
				t.Errorf("run: exit code %d", got)
			}

			signal, code, _ := start("elect", "board", "--lease", "5s", "--", "sh", "-c", prints)
			runs("election/board")
			signal()
			if got := code(); got != 143 || !e.lockFree("election/board") {
				t.Errorf("elect: exit code %d", got)
			}

			signal, code, readErr := start("cron", "poll", "@yearly", "--max-attempts", "1", "--metrics", "127.0.0.1:0", "--",
				"sh", "-c", "yes | head -c 3000000; yes | head -c 3000000 >&2; exit 3")
			e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/poll}:job") })
			for n := range 2 {
				e.must("trigger", "poll")
				if run := e.ended("poll", n+1); run.Outcome != "failed" || !strings.HasPrefix(run.Error, "exit code 3: y\n") {
					t.Errorf("cron: %s, %.20q", run.Outcome, run.Error)
				}
			}
			if why == "pipe full" {
				e.reads(readErr)
			}
			signal()
			if got := code(); got != 0 {
				t.Errorf("cron: exit code %d", got)
			}
		})
	}
}

var notice = regexp.MustCompile(`^\[\d+ bytes of output were dropped here`)

// reads reads the output of cron up to the notice. The metrics count what was dropped.
func (e *env) reads(output *os.File) {
	e.Helper()
	addr := ""
	lines := bufio.NewScanner(output)
	for lines.Scan() && !notice.MatchString(lines.Text()) {
		if _, after, ok := strings.Cut(lines.Text(), " addr="); ok {
			addr = after
		}
	}
	_, seen := get(addr + "/metrics")
	_, after, _ := strings.Cut(seen, "\nnoonctl_output_dropped_bytes_total ")
	var dropped float64
	_, _ = fmt.Sscan(after, &dropped)
	if dropped < 1_000_000 { // of standard output alone, which nobody reads
		e.Errorf("%q: %g bytes are counted as dropped", lines.Text(), dropped)
	}
}
