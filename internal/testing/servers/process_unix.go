//go:build unix && !linux

package servers

import "syscall"

// attributes puts a program into its own process group, so that an interrupt from the
// terminal reaches only the test process. These systems have no parent-death signal.
func attributes(credential *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}
