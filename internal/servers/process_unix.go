//go:build unix && !linux

package servers

import "syscall"

// attributes puts a program in a process group of its own, so that an interrupt
// typed at the terminal reaches the test process alone. There is no
// parent-death signal on these systems.
func attributes(credential *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}

// standsStill has no portable way to look at another process, and relies on
// SIGSTOP being prompt.
func standsStill(int) bool { return true }
