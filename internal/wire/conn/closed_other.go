//go:build !unix

package conn

import "syscall"

// isClosed is not known here.
func isClosed(syscall.RawConn) bool { return false }
