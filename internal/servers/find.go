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

// find returns where the program is installed, or "". Distributions keep server
// programs in folders that an ordinary user's PATH leaves out, so the folders
// (glob patterns) are searched after it.
func find(folders []string, name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range folders {
		// Glob fails only on a malformed pattern, and ours are constants.
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

// newestFirst orders paths like /usr/lib/postgresql/9/bin/x by the number in
// them, the greatest first, so that version 15 comes before version 9.
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

// Count records a number that a test is about: in its log, and at the end of
// `make test`, because the log of a test that passes is not shown.
func Count(tb testing.TB, format string, args ...any) {
	tb.Helper()
	line := fmt.Sprintf(format, args...)
	tb.Log(line)
	tb.Attr("counted", line)
}

// missing ends the test because program is not installed: with a failure if
// servers are required, else with a skip.
func missing(tb testing.TB, program, debianPackage string) {
	tb.Helper()
	reason := fmt.Sprintf("needs %s, which is not installed (Debian package %s)", program, debianPackage)
	if os.Getenv("NOONLOCK_REQUIRE_SERVERS") == "1" {
		tb.Fatalf("%s, and NOONLOCK_REQUIRE_SERVERS=1 allows no skip", reason)
	}
	tb.Skip(reason)
}
