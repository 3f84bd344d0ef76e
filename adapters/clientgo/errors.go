package clientgo

import (
	"errors"

	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/input"
)

// Errors of this package, for errors.Is. A missing or changed record is reported as client-go
// expects it: apierrors.IsNotFound, apierrors.IsConflict. All other errors are lockcore's.
var (
	// ErrConfig matches every *ConfigError in errors.Is.
	ErrConfig = errors.New("clientgo: refused")

	// ErrNewerSchema means that a newer release wrote the record with a schema that this
	// release does not support. Nothing was written.
	ErrNewerSchema = cas.ErrNewerSchema

	// ErrNotRead is returned by an Update before the first Get or Create, since there is no
	// known version to replace.
	ErrNotRead = errors.New("clientgo: Update before the first read; call Get or Create first")
)

// ConfigError reports an invalid argument or configuration field. Nothing was sent. Its fields are
// strings: Field names the argument or field, Value is its value (text is quoted), and Rule says
// which values are valid. It matches ErrConfig.
type ConfigError = input.ConfigError[refused]

type refused struct{}

func (refused) Refusal() error { return ErrConfig }
