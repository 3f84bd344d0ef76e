package testenv

import (
	"regexp"
	"runtime"
	"strings"
)

// Goroutines counts the goroutines of this process while all of them stand still.
// [runtime.NumGoroutine] does not stop them: while a thread moves ended goroutines from one
// list of the runtime to another, it counts up to 32 too many.
func Goroutines() int {
	// A list that is too short makes the runtime stop the world, count, and store nothing.
	n, _ := runtime.GoroutineProfile(make([]runtime.StackRecord, 1))
	return n
}

var (
	bubbleOf  = regexp.MustCompile(`synctest bubble \d+`)
	createdBy = regexp.MustCompile(`created by github\.com/noonlock/noonlock/(\S+)`)
)

// goroutinesOfLibrary returns the stacks of goroutines in the caller's bubble that the library, no test, has started.
func goroutinesOfLibrary() (stacks []string) {
	buf := make([]byte, 1<<20)
	bubble := bubbleOf.FindString(string(buf[:runtime.Stack(buf, false)]))
	n := runtime.Stack(buf, true)
	for n == len(buf) {
		buf = make([]byte, 2*n)
		n = runtime.Stack(buf, true)
	}
	for g := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		head, _, _ := strings.Cut(g, "\n")
		by := createdBy.FindStringSubmatch(g)
		if by == nil || bubbleOf.FindString(head) != bubble {
			continue
		}
		pkg, _, _ := strings.Cut(by[1], ".")
		if !strings.HasSuffix(pkg, "_test") && !strings.HasSuffix(pkg, "internal/testing/testenv") && !strings.HasSuffix(pkg, "lockcoretest") {
			stacks = append(stacks, g)
		}
	}
	return stacks
}

// requireNoGoroutines asserts that no goroutine of the library is left. except is optional: goroutines whose stacks
// contain this text are allowed. before is the next event, for the error.
func (s *site) requireNoGoroutines(before, except string) {
	s.Helper()
	for _, g := range goroutinesOfLibrary() {
		if except == "" || !strings.Contains(g, except) {
			s.Errorf("a goroutine is left after Close, and before %s:\n%s", before, g)
		}
	}
}
