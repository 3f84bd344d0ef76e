package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
)

// A terminal is a pseudo-terminal. What programs print to it is collected.
type terminal struct {
	t              *testing.T
	master, screen *os.File
	text           testenv.Log
}

// lacks skips a test because of what the machine lacks. If servers are required, as in CI, the test
// fails.
func lacks(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("NOONLOCK_REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s, and NOONLOCK_REQUIRE_SERVERS=1 allows no skip", reason)
	}
	t.Skip(reason)
}

func newTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		lacks(t, fmt.Sprintf("no pseudo-terminals: %v", err))
	}
	testenv.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	testenv.Must(t, err)
	screen, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	testenv.Must(t, err)
	testenv.Must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	term := &terminal{t: t, master: master, screen: screen}
	go func() { _, _ = io.Copy(&term.text, master) }() // until it is closed
	t.Cleanup(func() {
		screen.Close()
		master.Close()
	})
	return term
}

// start starts a process that has the terminal as its controlling terminal.
func (term *terminal) start(cmd *exec.Cmd) {
	term.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.screen, term.screen, term.screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testenv.Must(term.t, cmd.Start())
	term.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

func (term *terminal) printed() string { return strings.ReplaceAll(term.text.String(), "\r\n", "\n") }

func (term *terminal) enter(text string) {
	term.t.Helper()
	_, err := term.master.WriteString(text)
	testenv.Must(term.t, err)
}

// On a terminal of 40 columns, no line of a table is longer, and nothing is cut off.
func TestNarrowTerminal(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Hold(e.client, "orders/eu-west-1")
	actors.Wait(e.Env, e.Client("worker-2"), "orders/eu-west-1")
	for _, args := range [][]string{{"get", "locks"}, {"describe", "lock", "orders/eu-west-1"}} {
		narrow := newTerminal(t, 40)
		cmd := e.program(args...)
		narrow.start(cmd)
		if code := exitOf(t, cmd); code != 0 {
			t.Errorf("%q: exit code %d: %s", args, code, narrow.printed())
		}
		e.Until("it is printed", func() bool { return strings.Contains(narrow.printed(), "worker-1") })
		for line := range strings.Lines(narrow.printed()) {
			if len([]rune(strings.TrimSpace(line))) > 40 {
				t.Errorf("%q: the line %q is too long", args, line)
			}
		}
	}
}

// release shows the holder, and releases only if the name is typed, and if another client did not get the lock meanwhile.
func TestReleaseAsks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Hold(e.client, "orders")
	for _, c := range []struct {
		typed   string
		columns uint16 // 0: unknown
		changes bool
		code    int
	}{{"yes\n", 80, false, 1}, {"order\n", 80, false, 1}, {"\n", 80, false, 1}, {"orders\n", 80, true, 1}, {"orders\n", 0, false, 0}} {
		term := newTerminal(t, c.columns)
		cmd := e.program("release", "orders")
		term.start(cmd)
		e.Until("it asks", func() bool { return strings.Contains(term.printed(), "Type the name") })
		if !strings.Contains(term.printed(), "worker-1") {
			t.Errorf("it does not show the holder: %s", term.printed())
		}
		if c.changes {
			testenv.Must(t, e.Raw.Del(t.Context(), "noonlock:{orders}:lock").Err())
			e.Hold(e.client, "orders")
		}
		term.enter(c.typed)
		if got := exitOf(t, cmd); got != c.code || e.lockFree("orders") != (c.code == 0) {
			t.Errorf("%+v: exit code %d, %s", c, got, term.printed())
		}
	}
}

// A command under run reads from the terminal, and gets its signals.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(t, 80)
	cmd := e.program("run", "--lock", "orders", "--", "sh", "-c", `read line; trap 'echo interrupted; exit 5' INT; echo "read: $line"; while :; do sleep 0.02; done`)
	term.start(cmd)
	e.Until("it runs", func() bool { return !e.lockFree("orders") })
	term.enter("hello\n")
	e.Until("it has read", func() bool { return strings.Contains(term.printed(), "read: hello") })
	term.enter("\x03")
	if code := exitOf(t, cmd); code != 5 {
		t.Errorf("exit code %d, %q", code, term.printed())
	}
	e.Until("it was interrupted", func() bool { return strings.Contains(term.printed(), "interrupted") })
}

// Ctrl-Z suspends the command and noonctl. When both continue and the lease has not ended, the
// command continues.
func TestRunIsSuspended(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(t, 80)
	// A shell with job control.
	self := e.program()
	script := self.Path + ` run --lock orders --ttl 1h -- sh -c 'echo on; read line; echo "read: $line"'; echo "suspended: $?"; fg; echo "code: $?"`
	cmd := exec.Command("bash", "--norc", "-i", "-c", "set -m; "+script)
	cmd.Env = self.Env
	if cmd.Err != nil {
		lacks(t, cmd.Err.Error())
	}
	term.start(cmd)
	e.Until("it runs", func() bool { return strings.Contains(term.printed(), "on\n") })
	term.enter("\x1a")
	e.Until("it is suspended and continued", func() bool { return strings.Contains(term.printed(), "suspended: 148") })
	e.Until("it reads", func() bool {
		term.enter("hello\n")
		return strings.Contains(term.printed(), "read: hello")
	})
	e.Until("the shell has its code", func() bool { return strings.Contains(term.printed(), "code: 0") })
}
