//go:build !nodemo

package main

import (
	"bytes"
	"context"
	_ "embed"
	"io"

	"github.com/noonlock/noonlock/examples/lottery/internal/demo"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

//go:embed entrants.csv
var bundled []byte

// demonstrate runs the demo. Images are built with the tag nodemo, without it.
func demonstrate(ctx context.Context, stdout io.Writer) error {
	list, err := store.ReadEntrants(bytes.NewReader(bundled))
	if err != nil {
		return err
	}
	return demo.Run(ctx, list, stdout)
}
