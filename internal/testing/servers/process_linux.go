package servers

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// attributes puts a program into its own process group, so that an interrupt from the
// terminal reaches only the test process. If deathSignal is not 0, the kernel sends it to the
// program when the thread that started the program ends.
func attributes(credential *syscall.Credential, deathSignal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential, Pdeathsig: deathSignal}
}

// isStopped reports whether every thread of the process has stopped. When kill returns,
// the SIGSTOP may not have been delivered yet.
func isStopped(pid int) bool {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(tasks + "/" + thread.Name() + "/stat")
		if err != nil || state(stat) != 'T' {
			return false
		}
	}
	return len(threads) > 0
}

// state returns the letter after the program's name. The name is in parentheses and may
// contain any character.
func state(stat []byte) byte {
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if len(rest) == 0 {
		return 0
	}
	return rest[0]
}
