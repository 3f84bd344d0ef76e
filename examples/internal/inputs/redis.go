// Package inputs checks the settings that the user of an example program gives.
package inputs

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// inPassword is appended where an unencoded password can make another part invalid.
const inPassword = ", or a / ? or # in the password is not percent-encoded"

// Redis parses the URL of Redis. An error names the invalid part but does not contain it,
// since each part may be part of the password.
func Redis(value string) (*redis.Options, error) {
	options, wrong := parse(value)
	if wrong != "" {
		return nil, errors.New("the URL is invalid: " + wrong + "; it must be redis://user:password@host:port/db, or rediss:// for TLS")
	}
	return options, nil
}

// parse returns the options of a URL, or what is wrong with it.
func parse(value string) (_ *redis.Options, wrong string) {
	scheme, _, found := strings.Cut(value, "://")
	switch {
	case !found || scheme != "redis" && scheme != "rediss":
		return nil, "it does not begin with redis:// or rediss://"
	case strings.TrimSpace(value) != value:
		return nil, "it has a space or line break before or after it"
	}
	u, err := url.Parse(value)
	var escape url.EscapeError
	switch {
	case errors.As(err, &escape):
		return nil, "a % is not followed by two hexadecimal digits; a % in user or password must be written %25"
	case err != nil && strings.Contains(err.Error(), "port"):
		return nil, "the port is not a number" + inPassword
	case err != nil && strings.Contains(err.Error(), "userinfo"):
		return nil, "user or password contains a character that must be percent-encoded"
	case err != nil:
		return nil, "the host is invalid, or a character is not percent-encoded"
	case u.Fragment != "" || strings.HasSuffix(value, "#"):
		return nil, "it contains a #; a # in user or password must be written %23"
	case u.Hostname() == "":
		return nil, "the host is missing"
	case !IsPort(u.Port()):
		return nil, "the port is not from 1 to 65535" + inPassword
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		if n, err := strconv.Atoi(path); err != nil || n < 0 {
			return nil, "the database is not a number from 0" + inPassword
		}
	}
	options, err := redis.ParseURL(value)
	switch {
	case err != nil:
		return nil, "a parameter after the ? is unknown or has an invalid value" + inPassword
	case options.DB < 0:
		return nil, "the database is not a number from 0"
	}
	return options, ""
}

// IsPort reports whether s is empty or a port from 1 to 65535.
func IsPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}
