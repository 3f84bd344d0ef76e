package servers

import "syscall"

// attributes puts a program into its own process group, so that an interrupt from the
// terminal reaches only the test process. If deathSignal is not 0, the kernel sends it to the
// program when the thread that started the program ends.
func attributes(credential *syscall.Credential, deathSignal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential, Pdeathsig: deathSignal}
}
