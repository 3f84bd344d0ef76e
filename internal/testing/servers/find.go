package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// find returns the path of the program, or "". Distributions install server programs in
// directories that are not in the PATH of ordinary users, so find searches PATH first and
// then these directories (glob patterns).
func find(folders []string, name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range folders {
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

// Count records a number that a test reports: in its log, and at the end of `make test`,
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
