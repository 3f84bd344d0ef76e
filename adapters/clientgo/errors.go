package clientgo

import (
	"errors"

	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
)

// Errors of this package, for errors.Is. A missing or changed record is reported as client-go
// expects it: apierrors.IsNotFound, apierrors.IsConflict. All other errors are lockcore's.
var (
	// ErrNewerSchema means that a newer release wrote the record with a schema that this
	// release does not support. Nothing was written.
	ErrNewerSchema = cas.ErrNewerSchema

	// ErrNotRead is returned by an Update before the first Get or Create, since there is no
	// known version to replace.
	ErrNotRead = errors.New("clientgo: Update before the first read; call Get or Create first")
)
