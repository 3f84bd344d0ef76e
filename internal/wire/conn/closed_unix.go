//go:build unix

package conn

import "syscall"

// isClosed reports whether the other side has closed a connection on which nothing was read yet. The goroutine that
// reads would find that too, but perhaps only after the next write.
func isClosed(socket syscall.RawConn) bool {
	closed := false
	err := socket.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return closed || err != nil
}
