//go:build nodemo

package cli

func demos() []command { return nil }
