package clientgo

import (
	"errors"
	"fmt"
)

// Errors of this package, to be told apart with errors.Is. What the server says of
// a record comes as client-go expects it: apierrors.IsNotFound, apierrors.IsConflict.
// All other errors are lockcore's.
var (
	// ErrConfig is what every *ConfigError is.
	ErrConfig = errors.New("clientgo: refused")

	// ErrNotRead is the answer to an Update before any Get or Create has told what
	// there is to update.
	ErrNotRead = errors.New("clientgo: nothing was read yet that could be updated; call Get or Create first")
)

// ConfigError refuses an input before anything was sent. It is ErrConfig.
type ConfigError struct {
	Field string // the parameter or field, such as "Config.Retain"
	Value string // what was given, quoted where it is text
	Rule  string // what it must be
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("clientgo: %s is %s; it must be %s", e.Field, e.Value, e.Rule)
}

// Is reports true for ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }
