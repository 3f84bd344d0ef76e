//go:build nodemo

package main

import (
	"context"
	"errors"
	"io"
)

// demonstrate refuses the demo, which images do not have.
func demonstrate(context.Context, io.Writer) error {
	return coded{errors.New("this program was built without the demo; the command must be serve, winners or verify"), refused}
}
