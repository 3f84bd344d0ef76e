package servers

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of this package. It is generous because machines
// that run tests are slow at times, and nothing is measured against it.
const patience = 90 * time.Second

// errExited is a server that ended before it was ready, as one does whose port
// was taken in the meantime.
var errExited = errors.New("servers: the server exited before it was ready")

// process is one server program: what to run, and the run in progress. Its
// exported methods are safe for use by several goroutines.
type process struct {
	name        string
	dir         string
	port        int
	argv        func(port int) []string
	ready       func(port int) error // one try; nil when the server answers
	credential  *syscall.Credential  // nil runs it as ourselves
	stopSignal  syscall.Signal       // asks for an orderly shutdown that waits for no client
	deathSignal syscall.Signal       // ends it at once; the kernel's, when the test process dies

	// removeFolder ends dir. It is kept as long as the process is, because it
	// holds the pipe whose closing, by the garbage collector too, ends dir.
	removeFolder func()

	tb testing.TB // nil for a shared server

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed once the run has ended and was waited for
}

// Pid returns the process id of the server itself; of its last run, if it is
// not running.
func (p *process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Dir returns the server's folder, which goes away with the server.
func (p *process) Dir() string { return p.dir }

// Stop asks the server to shut down in an orderly way and waits until it has.
// A paused server is resumed for that.
func (p *process) Stop() {
	p.tb.Helper()
	if !p.end(p.stopSignal) {
		p.tb.Errorf("%s did not stop within %v of %v and was killed", p.name, patience, p.stopSignal)
	}
}

// end sends sig and waits; a server that does not end in time is killed, and the
// answer is false.
func (p *process) end(sig syscall.Signal) bool {
	p.signal(sig)
	p.signal(syscall.SIGCONT)
	select {
	case <-p.ended():
		return true
	case <-time.After(patience):
		p.Kill()
		return false
	}
}

// Kill ends the server with SIGKILL, paused or not, and waits until it is gone.
// Killing a server that has ended is allowed and does nothing.
func (p *process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended()
}

// Pause freezes the server with SIGSTOP and returns once it stands still: what
// is sent to it afterwards waits in the kernel until Resume.
func (p *process) Pause() {
	p.tb.Helper()
	if !p.signal(syscall.SIGSTOP) {
		p.tb.Errorf("cannot pause %s: it is not running", p.name)
		return
	}
	pid := p.Pid()
	if !poll(func() bool { return standsStill(pid) }) {
		p.tb.Errorf("%s did not stand still within %v of SIGSTOP", p.name, patience)
	}
}

// Resume lets a paused server go on.
func (p *process) Resume() {
	p.tb.Helper()
	if !p.signal(syscall.SIGCONT) {
		p.tb.Errorf("cannot resume %s: it is not running", p.name)
	}
}

// Restart starts the server again, in the same folder and on the same port, and
// waits until it answers. A server that still runs is stopped first.
func (p *process) Restart(tb testing.TB) {
	tb.Helper()
	p.Stop()
	if err := p.start(); err != nil {
		tb.Fatalf("restarting: %v", err)
	}
}

// launch starts the server for the first time, on a free port.
func (p *process) launch() error {
	var err error
	for range 5 {
		if p.port, err = freePort(); err != nil {
			return err
		}
		if err = p.start(); !errors.Is(err, errExited) {
			return err
		}
	}
	return err
}

// start runs the server once and returns when it is ready. If that fails,
// nothing is left running.
func (p *process) start() error {
	out, err := os.OpenFile(p.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	defer out.Close()
	argv := p.argv(p.port)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes(p.credential, p.deathSignal)

	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel sends the death signal when the thread that forked ends,
		// not the process: so this thread stays until the server is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()

	var last error
	exited := false
	answered := poll(func() bool {
		select {
		case <-done:
			exited = true
			return true
		default:
			last = p.ready(p.port)
			return last == nil
		}
	})
	if exited {
		return fmt.Errorf("%s: %w:\n%s", p.name, errExited, p.logTail())
	}
	if !answered {
		p.end(p.deathSignal)
		return fmt.Errorf("%s: not ready within %v: %w\n%s", p.name, patience, last, p.logTail())
	}
	return nil
}

// signal reports whether the server was there to take it. A run that was waited
// for is never signalled: its process id may belong to somebody else by now.
func (p *process) signal(sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(sig) == nil
}

func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

func (p *process) logFile() string { return filepath.Join(p.dir, "server.log") }

// logTail returns the end of what the server printed.
func (p *process) logTail() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// endWith ties a running dedicated server to its test.
func (p *process) endWith(tb testing.TB) {
	tb.Helper()
	p.tb = tb
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("the end of the log of %s:\n%s", p.name, p.logTail())
		}
		p.removeFolder()
	})
}

// folder makes a temporary folder and something that removes it when remove is
// called or when this process is gone, however it went: a shell that waits for
// the end of its standard input, which the kernel brings about. It tries for a
// while because a dying server may still write there.
func folder(name string) (dir string, remove func(), err error) {
	// Not t.TempDir: it is closed to other users, and postgres may have to run
	// as one; and a shared server outlives the test.
	dir, err = os.MkdirTemp("", "noonlock-"+name+"-")
	if err != nil {
		return "", nil, err
	}
	sweeper := exec.Command("sh", "-c", `cat >/dev/null
		n=0
		until rm -rf -- "$1" 2>/dev/null; do
			n=$((n + 1))
			[ "$n" -lt 100 ] || exit 1
			sleep 0.1
		done`, "sh", dir)
	sweeper.SysProcAttr = attributes(nil, 0)
	stdin, err := sweeper.StdinPipe()
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := sweeper.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() {
		stdin.Close()
		_ = sweeper.Wait() // a folder that cannot be removed fails no test
	}, nil
}

// poll waits until condition holds and reports whether it came to that.
func poll(condition func() bool) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if condition() {
			return true
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return condition()
		}
	}
}

// freePort picks a loopback port below the range from which kernels take the
// source ports of outgoing connections: there a stopped server would lose its
// port to any client. Another process may still take it before the server
// does, so launch tries again.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := 12000 + rand.IntN(18000)
		l, err := net.Listen("tcp", loopback(port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("no free port: %w", last)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// run runs a program to its end. If it fails, its output is part of the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(out))
	}
	return nil
}
