//go:build !unix

package command

// Processes is empty: process groups and signals are needed to end a command before its lease.
type Processes struct{}

// Adopt returns nil.
func Adopt(string) *Processes { return nil }
