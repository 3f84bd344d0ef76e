//go:build !linux

package chaos

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return nil }
