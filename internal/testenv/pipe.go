package testenv

import (
	"os"
	"testing"
	"time"
)

// FullPipe returns a pipe that nobody reads and that takes no more bytes.
func FullPipe(t testing.TB) *os.File {
	t.Helper()
	unread, pipe, err := os.Pipe()
	Must(t, err)
	t.Cleanup(func() {
		unread.Close()
		pipe.Close()
	})
	Must(t, pipe.SetWriteDeadline(time.Now().Add(time.Second)))
	for err == nil { // until the deadline
		_, err = pipe.Write(make([]byte, 1<<20))
	}
	return pipe
}
