//go:build unix

package cli_test

import (
	"os"
	"os/exec"
	"syscall"
)

// asNobody runs root's command as a user without permissions.
func asNobody(command *exec.Cmd) {
	if os.Geteuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}
