// Package noonlock has what the packages of this module have in common. The work is done by package lockcore
// (locks), election (leaders), singleton (jobs, and work that is done once), and healthz.
package noonlock

import (
	"errors"
	"fmt"
)

// ErrConfig matches every *ConfigError.
var ErrConfig = errors.New("noonlock: refused")

// A ConfigError reports an invalid argument or configuration field. Nothing was sent. It matches ErrConfig.
type ConfigError struct {
	Package string // that refuses it, such as "lockcore"
	Field   string // the argument or the field, such as "LeaseConfig.TTL"
	Value   string // what was given, in quotation marks if it is text; without secrets
	Rule    string // which values are valid
}

// Error returns a sentence with all fields.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("%s: %s is %s; it must be %s", e.Package, e.Field, e.Value, e.Rule)
}

// Is reports true for ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// PanicError is the value that Run of an elector or of partitions panics with if a callback has panicked that runs on
// a goroutine of its own: OnNewLeader, Config.Healthy, or the work of a partition. A panic of another callback reaches
// Run's caller unchanged.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("noonlock: a callback panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
