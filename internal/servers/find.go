package servers

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
		slices.SortFunc(matches, newestFirst)
		for _, path := range matches {
			if _, err := exec.LookPath(path); err == nil {
				return path
			}
		}
	}
	return ""
}

// newestFirst orders paths like /usr/lib/postgresql/9/bin/x by the number in them, in
// descending order, so that version 15 comes before version 9.
func newestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(version(b), version(a)), cmp.Compare(b, a))
}

func version(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, err := strconv.Atoi(digits[0])
	if err != nil {
		return 0
	}
	return n
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
