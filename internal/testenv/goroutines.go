package testenv

import "runtime"

// Goroutines counts the goroutines of this process while all of them stand still.
// [runtime.NumGoroutine] does not stop them: while a thread moves ended goroutines from one
// list of the runtime to another, it counts up to 32 too many.
func Goroutines() int {
	// A list that is too short makes the runtime stop the world, count, and store nothing.
	n, _ := runtime.GoroutineProfile(make([]runtime.StackRecord, 1))
	return n
}
