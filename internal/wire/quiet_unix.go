//go:build unix

package wire

import (
	"net"
	"syscall"
)

// isQuiet reports whether nothing has arrived on an idle connection. Otherwise, the other side has closed it,
// or has sent what nobody asked for. What cannot be asked, such as TLS, is taken to be quiet.
func isQuiet(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EINTR //nolint:errorlint // they are not wrapped
		return true
	})
	return quiet && err == nil
}
