//go:build nodemo

package demo

import (
	"context"
	"errors"
	"io"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

// Run refuses. Images are built with the tag nodemo, without the demo and its Redis.
func Run(context.Context, store.Entrants, io.Writer) error {
	return errors.New("this program was built without the demo; the command must be serve, winners or verify")
}
