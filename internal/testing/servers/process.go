package servers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience limits every wait of this package. It is generous, since machines that run
// tests can be slow.
const patience = 90 * time.Second

// process runs a server program. Its exported methods are safe for concurrent use.
type process struct {
	name        string
	dir         string
	port        int
	argv        func(port int) []string
	ready       func(port int) error // returns nil when the server accepts commands
	credential  *syscall.Credential  // user of the server; nil for the user of the test process
	deathSignal syscall.Signal       // ends it immediately; the kernel sends it when the test process dies

	// removeFolder removes dir. The process must keep it: it holds the pipe whose closing,
	// even by the garbage collector, removes dir.
	removeFolder func()
	freePort     func() // ends the reservation of port

	tb testing.TB // nil for a shared server

	current atomic.Pointer[serverRun] // last run
}

// serverRun is one run of a server.
type serverRun struct {
	*os.Process
	done chan struct{} // closed after the run has ended and was waited for
}

// Start starts a program. exited is closed when the program has ended and cmd.ProcessState has its result. The kernel
// sends Pdeathsig when the thread that forked the program ends, not the process. So this thread exists until then.
func Start(cmd *exec.Cmd) (exited chan struct{}, err error) {
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	return exited, <-started
}

// attributes puts a program into its own process group, so that an interrupt from the
// terminal reaches only the test process. On Linux, the kernel sends deathSignal to the
// program when the thread that started the program ends. Other systems cannot do this.
func attributes(credential *syscall.Credential, deathSignal syscall.Signal) *syscall.SysProcAttr {
	all := &syscall.SysProcAttr{Setpgid: true, Credential: credential}
	if field := reflect.ValueOf(all).Elem().FieldByName("Pdeathsig"); field.IsValid() {
		field.SetInt(int64(deathSignal))
	}
	return all
}

// Pid returns the process ID of the server, or of its last run if it is not running.
func (p *process) Pid() int { return p.current.Load().Pid }

// Dir returns the server's directory, which is removed with the server.
func (p *process) Dir() string { return p.dir }

// Stop shuts the server down in an orderly way and waits for its end. It resumes a paused
// server first.
func (p *process) Stop() {
	p.tb.Helper()
	if !p.end(syscall.SIGTERM) {
		p.tb.Errorf("%s did not stop within %v and was killed", p.name, patience)
	}
}

// end sends sig and waits for the end of the server. If the server does not end in time,
// end kills it and returns false.
func (p *process) end(sig syscall.Signal) bool {
	p.signal(sig)
	p.signal(syscall.SIGCONT)
	select {
	case <-p.current.Load().done:
		return true
	case <-time.After(patience):
		p.Kill()
		return false
	}
}

// Kill ends the server with SIGKILL, even if it is paused, and waits for its end. It does nothing
// if the server has ended.
func (p *process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.current.Load().done
}

// Pause stops the server with SIGSTOP and returns when it has stopped. Data sent to it
// afterwards stays in the kernel until Resume.
func (p *process) Pause() {
	p.tb.Helper()
	if !p.signal(syscall.SIGSTOP) || !poll(p.isStopped) {
		p.tb.Errorf("%s did not stop within %v of SIGSTOP", p.name, patience)
	}
}

// isStopped reports whether every thread has stopped. When kill returns, the SIGSTOP may not have been delivered yet.
// Other systems than Linux do not have these files, and SIGSTOP takes effect quickly there.
func (p *process) isStopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid())) // the pattern is valid
	return !slices.ContainsFunc(threads, func(thread string) bool {
		stat, _ := os.ReadFile(thread)
		return !bytes.Contains(stat, []byte(") T "))
	})
}

// Resume continues a paused server.
func (p *process) Resume() { p.signal(syscall.SIGCONT) }

// Restart starts the server again in the same directory and on the same port, and waits
// until it is ready. It stops a running server first.
func (p *process) Restart(tb testing.TB) {
	tb.Helper()
	p.Stop()
	if err := p.start(); err != nil {
		tb.Fatalf("restarting: %v", err)
	}
}

// begin starts the server for the first time, on a free port, with its files in a new folder of parent. prepare makes
// the files and sets argv.
func (p *process) begin(parent string, prepare func() error) (err error) {
	if p.dir, p.removeFolder, err = folder(parent, p.name); err != nil {
		return err
	}
	if err = prepare(); err == nil {
		p.port, p.freePort, err = reservePort()
	}
	if err == nil {
		if err = p.start(); err != nil {
			p.freePort()
		}
	}
	if err != nil {
		p.removeFolder()
	}
	return err
}

// start runs the server once and returns when it is ready. After an error the server does
// not run.
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

	done, err := Start(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.current.Store(&serverRun{cmd.Process, done})
	exited := false
	if !poll(func() bool {
		select {
		case <-done:
			exited, err = true, fmt.Errorf("it has ended: %v", cmd.ProcessState)
		default:
			err = p.ready(p.port)
		}
		return exited || err == nil
	}) {
		p.end(p.deathSignal)
	}
	if err != nil {
		return fmt.Errorf("%s: not ready within %v: %w\n%s", p.name, patience, err, p.logTail())
	}
	return nil
}

// signal reports whether the server received the signal. It never signals a run that was
// waited for, since another process may already have its process ID.
func (p *process) signal(sig syscall.Signal) bool { return p.current.Load().Signal(sig) == nil }

func (p *process) logFile() string { return filepath.Join(p.dir, "server.log") }

// logTail returns the end of the server's log.
func (p *process) logTail() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// endWith ends the server and removes its directory at the end of the test.
func (p *process) endWith(tb testing.TB) {
	tb.Helper()
	p.tb = tb
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("end of the log of %s:\n%s", p.name, p.logTail())
		}
		p.removeFolder()
		p.freePort()
	})
}

// poll waits for condition, and reports whether it was met in time.
func poll(condition func() bool) bool {
	for began := time.Now(); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			return false
		}
	}
	return true
}

// reservePort reserves a loopback port for a server. The server may also use the next port, and the two ports 10000
// above, where Redis puts the bus of a cluster.
//
// All of them are below the kernel's ephemeral ports. Otherwise, a client could get the port of a stopped server. The
// UDP port of the same number stays bound until free is called, as no server here uses UDP. So the servers of all test
// processes have different ports, even while a server is stopped.
func reservePort() (port int, free func(), err error) {
	for range 100 {
		port = 12000 + 2*rand.IntN(5000)
		reserved, e := net.ListenPacket("udp", loopback(port))
		if e != nil {
			err = e
			continue
		}
		l, e := net.Listen("tcp", loopback(port))
		if e != nil {
			reserved.Close()
			err = e
			continue
		}
		return port, func() { reserved.Close() }, l.Close()
	}
	return 0, nil, fmt.Errorf("no free port: %w", err)
}

// Port returns a loopback port that no other test uses until the end of this one. A server of the
// test may stop there and start again.
func Port(tb testing.TB) int {
	tb.Helper()
	port, free, err := reservePort()
	must(tb, err)
	tb.Cleanup(free)
	return port
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
