package servers

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// attributes puts a program in a process group of its own, so that an interrupt
// typed at the terminal reaches the test process alone, and has the kernel send
// it deathSignal (0: none) when the thread that started it is gone.
func attributes(credential *syscall.Credential, deathSignal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential, Pdeathsig: deathSignal}
}

// standsStill reports whether every thread of the process has taken its SIGSTOP:
// a signal is only on its way when kill returns.
func standsStill(pid int) bool {
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

// state returns the letter after the program's name, which is in parentheses and
// may itself hold any character.
func state(stat []byte) byte {
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if len(rest) == 0 {
		return 0
	}
	return rest[0]
}
