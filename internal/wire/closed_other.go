//go:build !unix

package wire

import "syscall"

// isClosed is not known here.
func isClosed(syscall.RawConn) bool { return false }
