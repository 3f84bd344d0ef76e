// Package login makes the options of the programs for Redis from a URL, passwords and certificates.
package login

import (
	"cmp"
	"crypto/tls"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/console/certs"
	"github.com/noonlock/noonlock/redisurl"
)

// A Login has the user, the passwords and the files that are not in the URL. They are not percent-encoded.
type Login struct {
	User, Password, SentinelPassword string
	Files                            certs.Files
}

// Options returns the options of a URL with the Login. An error about a file is a *certs.Error.
func (l Login) Options(url string) (*redis.UniversalOptions, error) {
	o, err := redisurl.Parse(url)
	if err != nil {
		return nil, err
	}
	if err := l.Files.Apply(cmp.Or(o.TLSConfig, &tls.Config{MinVersion: tls.VersionTLS12})); err != nil {
		return nil, err
	}
	switch {
	case l.Password != "" && o.Password != "", l.SentinelPassword != "" && o.SentinelPassword != "":
		return nil, errors.New("a password is in the URL, and set apart from it, too; one of the two must be left out")
	case l.SentinelPassword != "" && o.MasterName == "":
		return nil, errors.New("the URL names no Sentinels, and a password of Sentinels is set; it must begin with redis+sentinel or rediss+sentinel")
	case l.Files.Set() && o.TLSConfig == nil:
		return nil, errors.New("the URL does not use TLS; with certificates it must begin with rediss")
	case l.Files.CA != "" && o.TLSConfig.InsecureSkipVerify:
		return nil, errors.New("the URL has skip_verify, which disables the check of certificates; it must be absent if --redis-ca is set")
	}
	o.Username, o.Password = cmp.Or(l.User, o.Username), cmp.Or(l.Password, o.Password)
	o.SentinelPassword = cmp.Or(l.SentinelPassword, o.SentinelPassword)
	return o, nil
}
