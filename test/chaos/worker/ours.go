//go:build !peers

package main

import (
	"context"
	"errors"
)

func (*worker) peer(context.Context) error { return errors.New("this program has no peers") }
