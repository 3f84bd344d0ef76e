package cli

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

const (
	redisUsage    = "the Redis to use, redis://user:password@host:port/db, or rediss:// for TLS"
	databaseUsage = "the database to use, sqlite:PATH, mysql://user:password@host:port/db or postgres://…"
)

// redis reads the URL of a Redis. What is wrong with it is not quoted: any part
// may turn out to be one of the password.
func (s *settings) redis(name, value string) *redis.Options {
	if s.missing(name, value) {
		return nil
	}
	options, err := redis.ParseURL(value)
	u, err2 := url.Parse(value)
	if errors.Join(err, err2) == nil && (u.Scheme == "redis" || u.Scheme == "rediss") && u.Hostname() != "" &&
		u.Fragment == "" && options.DB >= 0 && isPort(u.Port()) {
		return options
	}
	s.fail(name, errors.New("the URL is refused; it must be redis://user:password@host:port/db or rediss:// for TLS, "+
		"and what means something in a URL must be percent-encoded in user and password, as %40 for @"))
	return nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// database reads the DSN of a database. It looks for the file of one that has
// one, or only for its folder if the file may be made.
func (s *settings) database(name, value string, mayBeNew bool) store.DSN {
	if s.missing(name, value) {
		return store.DSN{}
	}
	dsn, err := store.ParseDSN(value)
	if err != nil {
		s.fail(name, err)
		return store.DSN{}
	}
	path, isFile := strings.CutPrefix(value, "sqlite:")
	if !isFile {
		return dsn
	}
	if mayBeNew {
		path = filepath.Dir(path)
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		s.fail(name, err)
	case mayBeNew && !info.IsDir():
		s.fail(name, errors.New(excerpt(path)+" is a file; it must be a folder, for the database file to be made in"))
	case !mayBeNew && info.IsDir():
		s.fail(name, errors.New(excerpt(path)+" is a folder; it must be the database file"))
	}
	return dsn
}

// listenAt reads the address to serve at; "" is nowhere.
func (s *settings) listenAt(name, value string) string {
	if value == "off" {
		return ""
	}
	if _, port, err := net.SplitHostPort(value); err != nil || port != "0" && (port == "" || !isPort(port)) {
		s.refuse(name, value, "an address such as :8080 or 127.0.0.1:8080, or off")
	}
	return value
}

// address is a Redis without its password.
func address(options *redis.Options) string {
	return options.Addr + "/" + strconv.Itoa(options.DB)
}
