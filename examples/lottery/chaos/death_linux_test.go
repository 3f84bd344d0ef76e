package chaos

import "syscall"

// dieWithUs makes the kernel kill the process when the tests are killed.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
