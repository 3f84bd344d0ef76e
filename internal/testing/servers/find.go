package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// find returns the path of the program, or "". It searches PATH, and then the directories of these glob patterns:
// distributions install servers in directories that are not in the PATH of ordinary users.
func find(patterns []string, name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range patterns {
		// Glob fails only for a malformed pattern, and all patterns are constants.
		matches, _ := filepath.Glob(filepath.Join(pattern, name))
		for _, path := range slices.Backward(matches) { // newest versions first
			if _, err := exec.LookPath(path); err == nil {
				return path
			}
		}
	}
	return ""
}

// Program returns the path of the first of these programs that is installed. Without one, it ends the test.
func Program(tb testing.TB, debianPackage string, names ...string) string {
	tb.Helper()
	for _, name := range names {
		if path := find(nil, name); path != "" {
			return path
		}
	}
	missing(tb, names[0], debianPackage)
	return ""
}

// Count reports a number that a test has counted. It appears in the log of the test, and at the end of `make test`,
// which does not show the logs of tests that pass.
func Count(tb testing.TB, format string, args ...any) {
	tb.Helper()
	line := fmt.Sprintf(format, args...)
	tb.Log(line)
	tb.Attr("counted", line)
}

// missing ends the test because a program is not installed. The test fails if servers are
// required and is skipped otherwise.
func missing(tb testing.TB, program, debianPackage string) {
	tb.Helper()
	reason := fmt.Sprintf("needs %s, which is not installed (Debian package %s)", program, debianPackage)
	if os.Getenv("NOONLOCK_REQUIRE_SERVERS") == "1" {
		tb.Fatalf("%s, and NOONLOCK_REQUIRE_SERVERS=1 allows no skip", reason)
	}
	tb.Skip(reason)
}

// memory returns a folder of a file system in memory, or "" if there is none with room. A server that waits for the disk
// at each write would otherwise stand still for seconds when something else keeps the disk busy.
func memory() string {
	const folder, room = "/dev/shm", 1 << 28
	var free syscall.Statfs_t
	if syscall.Statfs(folder, &free) != nil || free.Bavail*uint64(free.Bsize) < room { //nolint:gosec // positive
		return ""
	}
	return folder
}

// folder makes a temporary directory in parent, "" being the system's. A shell removes it when remove is called or this process ends, even if the
// process is killed: then the kernel closes the standard input of the shell. The shell retries for a while, since a
// server that is ending may still write to the directory.
func folder(parent, name string) (dir string, remove func(), err error) {
	// Not t.TempDir: only this user can access it, and postgres may have to run as another user. Also, a shared server
	// outlives the test.
	dir, err = os.MkdirTemp(parent, "noonlock-"+name+"-")
	if err != nil {
		return "", nil, err
	}
	sweeper := exec.Command("sh", "-c", `cat >/dev/null
		n=0
		until rm -rf -- "$1" 2>/dev/null; do
			n=$((n + 1))
			[ "$n" -lt 100 ] || exit 1
			sleep 0.1
		done`, "sh", dir)
	sweeper.SysProcAttr = attributes(nil, 0) // an interrupt from the terminal must not end it
	stdin, err := sweeper.StdinPipe()
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := sweeper.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() {
		stdin.Close()
		_ = sweeper.Wait() // a directory that cannot be removed does not fail the test
	}, nil
}

// run runs a program to its end. If it fails, its output is part of the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(out))
	}
	return nil
}
