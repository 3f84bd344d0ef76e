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
