// Hand affects a process of another pod in ways for which Kubernetes has no command. It runs as
// root, privileged, with the node's process IDs and cgroups, on the node of the pod:
//
//	hand kill POD PROGRAM   SIGKILL to the process
//	hand oom POD PROGRAM    takes memory in the process's cgroup until the kernel
//	                        kills the process for it
//
// Two other commands need no rights:
//
//	hand ask URL            sends requests, each on its own connection, and prints each
//	                        change of the answer as JSON
//	hand write FILE TEXT    writes a file
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hand:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "fill" {
		return fill(args[1])
	}
	if len(args) == 2 && args[0] == "ask" {
		return ask(args[1])
	}
	if len(args) == 3 && args[0] == "write" {
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	}
	if len(args) != 3 {
		return errors.New("the arguments must be kill or oom, a pod and a program; or ask and a URL; or write, a file and its text")
	}
	pid, err := find(args[1], args[2])
	if err != nil {
		return err
	}
	switch args[0] {
	case "kill":
		fmt.Printf("killing %d at %s\n", pid, time.Now().UTC().Format(time.RFC3339Nano))
		return syscall.Kill(pid, syscall.SIGKILL)
	case "oom":
		return starve(pid)
	}
	return fmt.Errorf("the first argument is %q; it must be kill or oom", args[0])
}

// find returns the process of the pod that runs the program. The host name of a container is the
// name of its pod.
func find(pod, program string) (int, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		// A process may have ended in the meantime.
		command, err1 := os.ReadFile(filepath.Join(folder, "cmdline"))
		environment, err2 := os.ReadFile(filepath.Join(folder, "environ"))
		if errors.Join(err1, err2) != nil {
			continue
		}
		name, _, _ := bytes.Cut(command, []byte{0})
		if string(name) == program && bytes.Contains(append([]byte{0}, environment...), []byte("\x00HOSTNAME="+pod+"\x00")) {
			return strconv.Atoi(filepath.Base(folder))
		}
	}
	return 0, fmt.Errorf("the pod %s has no process %s", pod, program)
}

// starve fills the cgroup of the process until the process is gone. It uses files in memory, which
// count for the cgroup of the writer, but not for the writer when the kernel selects the largest
// process to kill.
func starve(pid int) error {
	group, err := memoryGroup(pid)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0); err != nil {
		return err
	}
	fmt.Printf("starving %d in %s\n", pid, group)
	defer func() {
		if err := os.RemoveAll(files); err != nil {
			fmt.Println("the memory is given back with the pod:", err)
		}
	}()
	for n := 0; syscall.Kill(pid, 0) == nil; n++ {
		if n == most {
			return fmt.Errorf("%d has outlived %d times that its memory was filled", pid, n)
		}
		// The child ends when no memory is left, killed or not.
		cmd := exec.Command(self, "fill", group)
		out, err := cmd.CombinedOutput()
		fmt.Printf("filled: %v %s\n", err, out)
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Printf("%d is gone\n", pid)
	return nil
}

// memoryGroup returns the directory of the process's cgroup that limits memory.
func memoryGroup(pid int) (string, error) {
	lines, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(lines)) {
		// number:controllers:path, where version 2 has no controllers
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) == 3 && parts[0] == "0" && parts[1] == "" && isFile("/sys/fs/cgroup"+parts[2]+"/memory.max"):
			return "/sys/fs/cgroup" + parts[2], nil
		case len(parts) == 3 && parts[1] == "memory":
			return "/sys/fs/cgroup/memory" + parts[2], nil
		}
	}
	return "", fmt.Errorf("the process %d is in no cgroup that limits memory", pid)
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const (
	files = "/fill/memory" // the in-memory volume of the pod
	most  = 100
)

// fill joins the cgroup and allocates memory there until it is killed or allocation fails.
func fill(group string) error {
	if err := os.WriteFile(group+"/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(files, "")
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<16)
	for range 1 << 16 {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	return errors.New("there seems to be no limit")
}

// ask sends a request every 10 ms. The pod ends it.
func ask(url string) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	type answer struct {
		Code     int    `json:"code"` // 0: no answer
		Identity string `json:"identity"`
	}
	for last := (answer{Code: -1}); ; time.Sleep(10 * time.Millisecond) {
		var now answer
		response, err := client.Get(url)
		if err == nil {
			_ = json.NewDecoder(response.Body).Decode(&now) // without an identity, it is another answer
			response.Body.Close()
			now.Code = response.StatusCode
		}
		if now != last {
			last = now
			if err := json.NewEncoder(os.Stdout).Encode(map[string]any{
				"time": time.Now(), "msg": "answer", "code": now.Code, "identity": now.Identity,
			}); err != nil {
				return err
			}
		}
	}
}
