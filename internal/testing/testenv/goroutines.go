package testenv

import (
	"regexp"
	"runtime"
	"runtime/pprof"
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

// requireNoGoroutines asserts that no goroutine in the caller's bubble is left that the library, no test, has started.
// except is optional: goroutines whose stacks contain this text are allowed. before is the next event, for the error.
func (s *site) requireNoGoroutines(before, except string) {
	s.Helper()
	var all strings.Builder
	Must(s, pprof.Lookup("goroutine").WriteTo(&all, 2))
	bubble := bubbleOf.FindString(all.String()) // the first goroutine is the caller
	for g := range strings.SplitSeq(all.String(), "\n\n") {
		head, _, _ := strings.Cut(g, "\n")
		by := createdBy.FindStringSubmatch(g)
		if by == nil || bubbleOf.FindString(head) != bubble || except != "" && strings.Contains(g, except) {
			continue
		}
		pkg, _, _ := strings.Cut(by[1], ".")
		if !strings.HasSuffix(pkg, "_test") && !strings.HasSuffix(pkg, "internal/testing/testenv") && !strings.HasSuffix(pkg, "lockcoretest") {
			s.Errorf("a goroutine is left after Close, and before %s:\n%s", before, g)
		}
	}
}
