// Package login is for the programs that take the passwords of Redis apart from its URL.
package login

import (
	"cmp"
	"errors"
)

// A Login is the user and the passwords that are not in the URL. They are not percent-encoded.
type Login struct{ User, Password, SentinelPassword string }

// Add adds what is set to that of a URL, which has Sentinels or not.
func (l Login) Add(user, password, sentinelPassword *string, sentinels bool) error {
	switch {
	case l.Password != "" && *password != "", l.SentinelPassword != "" && *sentinelPassword != "":
		return errors.New("a password is in the URL, and set apart from it, too; one of the two must be left out")
	case l.SentinelPassword != "" && !sentinels:
		return errors.New("the URL names no Sentinels, and a password of Sentinels is set; it must begin with redis+sentinel or rediss+sentinel")
	}
	*user, *password = cmp.Or(l.User, *user), cmp.Or(l.Password, *password)
	*sentinelPassword = cmp.Or(l.SentinelPassword, *sentinelPassword)
	return nil
}
