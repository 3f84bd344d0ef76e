//go:build nodemo

package demo

import "errors"

// Run returns an error. Images are built with the tag nodemo, without the demo and its Redis.
func Run(...any) error {
	return errors.New("this program was built without the demo; the command must be serve, winners, verify or accept")
}
