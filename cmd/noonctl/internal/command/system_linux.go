package command

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// protect keeps processes of the same user from reading the environment and the memory of this one, which
// contain the URL of Redis.
func protect() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) // started from /proc/self/exe, a guard would have the name exe
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// adoptOrphans makes this process the parent of processes whose parent has ended. exec keeps this setting, so a gate
// must not call adoptOrphans.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// executable returns the program that runs, even if its file was replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// now reads a clock that all processes share. It continues while the machine is suspended.
func now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // Linux has this clock since 2.6.39
	return time.Duration(ts.Nano())
}

// onlyZombies reports whether all processes of a group have ended, and nobody has waited for them:
// their parent may have left the group.
func onlyZombies(group int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	zombies := 0
	for _, entry := range entries {
		if name := entry.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// The name of the program, in parentheses, is the only field with spaces.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 18 || fields[2] != strconv.Itoa(group) {
			continue
		}
		if state, threads := fields[0], fields[17]; state != "Z" && state != "X" || threads > "1" {
			return false
		}
		zombies++
	}
	return zombies > 0
}

// suspendTogether suspends noonctl when the command pid is suspended at its terminal (Ctrl-Z), so
// that the shell continues, and continues the command when the shell continues noonctl. The
// lease is not renewed meanwhile.
func suspendTogether(t terminal, pid int) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // the command has ended
		}
		t.takeForeground()
		select {
		case <-continued: // a signal of an earlier round
		default:
		}
		_ = syscall.Kill(0, syscall.SIGTSTP)
		// Another thread may get the signal, and this one may continue until then. Without a
		// shell that could continue noonctl, the system ignores the signal.
		select {
		case <-continued:
		case <-time.After(time.Second):
		}
		if t.inForeground() { // otherwise, the shell has continued noonctl in the background
			t.setForeground(pid)
		}
		_ = syscall.Kill(-pid, syscall.SIGCONT)
	}
}
