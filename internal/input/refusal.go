package input

import (
	"fmt"
	"strings"
)

// A Package identifies the package that refuses an input.
type Package interface {
	// Refusal returns the sentinel that all ConfigErrors of the package match. Its text is
	// the name of the package and ": refused".
	Refusal() error
}

// A ConfigError is a package's refusal of an input, before anything was sent.
type ConfigError[P Package] struct {
	Field string // the parameter or field, such as "Config.Timeout"
	Value string // what was given, quoted if it is text
	Rule  string // what it must be
}

func (e *ConfigError[P]) Error() string {
	name, _, _ := strings.Cut(e.refusal().Error(), ":")
	return fmt.Sprintf("%s: %s is %s; it must be %s", name, e.Field, e.Value, e.Rule)
}

// Is reports true for the sentinel of the package.
func (e *ConfigError[P]) Is(target error) bool { return target == e.refusal() }

func (e *ConfigError[P]) refusal() error {
	var p P
	return p.Refusal()
}
