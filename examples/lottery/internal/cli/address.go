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

	"github.com/noonlock/noonlock/examples/lottery/internal/certs"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

const (
	redisUsage    = "the Redis to use, redis://user:password@host:port/db, or rediss:// for TLS"
	databaseUsage = "the database to use, sqlite:PATH, mysql://user:password@host:port/db or postgres://…"
)

// redis reads the URL of a Redis. Which part is wrong is told, and not what it is:
// any part may turn out to be one of the password.
func (s *settings) redis(name, value string) *redis.Options {
	if s.missing(name, value) {
		return nil
	}
	options, wrong := parseRedis(value)
	if wrong != "" {
		s.fail(name, errors.New("the URL is refused: "+wrong+"; it must be redis://user:password@host:port/db, or rediss:// for TLS"))
		return nil
	}
	return options
}

// inPassword is what makes any other part of a URL look wrong.
const inPassword = ", or a / ? or # of the password is not percent-encoded"

// parseRedis returns what is wrong with a URL; empty: nothing.
func parseRedis(value string) (_ *redis.Options, wrong string) {
	scheme, _, found := strings.Cut(value, "://")
	switch {
	case !found || scheme != "redis" && scheme != "rediss":
		return nil, "it does not begin with redis:// or rediss://"
	case strings.TrimSpace(value) != value:
		return nil, "a space or the end of a line stands before or after it"
	}
	u, err := url.Parse(value)
	var escape url.EscapeError
	switch {
	case errors.As(err, &escape):
		return nil, "a % is not followed by two hexadecimal digits; a % of user or password must be written %25"
	case err != nil && strings.Contains(err.Error(), "port"):
		return nil, "the port is not a number" + inPassword
	case err != nil && strings.Contains(err.Error(), "userinfo"):
		return nil, "user or password have a character in them that must be percent-encoded"
	case err != nil:
		return nil, "the host is none, or a character is not percent-encoded"
	case u.Fragment != "" || strings.HasSuffix(value, "#"):
		return nil, "a # stands in it; one of user or password must be written %23"
	case u.Hostname() == "":
		return nil, "the host is missing"
	case !isPort(u.Port()):
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
		return nil, "a parameter after the ? is not known or has a value that it cannot have" + inPassword
	case options.DB < 0:
		return nil, "the database is not a number from 0"
	}
	return options, ""
}

// certificates are the flags that name files for TLS.
type certificates struct{ ca, cert, key *string }

// certificates declares the flags --NAME-ca, --NAME-cert and --NAME-key.
func (s *settings) certificates(name, whose string) certificates {
	return certificates{
		ca:   s.text(name+"-ca", "FILE", "", "PEM file of the authorities that may vouch for "+whose+", instead of the system's"),
		cert: s.text(name+"-cert", "FILE", "", "PEM file of the client certificate to show to "+whose+"; read anew for each connection"),
		key:  s.text(name+"-key", "FILE", "", "PEM file of that certificate's private key"),
	}
}

// load reads the files; set: there are any, and they are good.
func (s *settings) load(name string, c certificates) (client certs.Client, set bool) {
	files := certs.Files{CA: *c.ca, Cert: *c.cert, Key: *c.key}
	client, err := files.Load()
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		s.fail(name+"-"+wrong.File, err)
	}
	return client, err == nil && files.Set()
}

// secureRedis gives the connections to Redis their certificates.
func (s *settings) secureRedis(options *redis.Options, c certificates) *redis.Options {
	client, set := s.load("redis", c)
	switch {
	case !set || options == nil:
	case options.TLSConfig == nil:
		s.fail("redis", errors.New("the URL begins with redis://, which is without TLS; it must begin with rediss:// where certificates are given"))
	case options.TLSConfig.InsecureSkipVerify && client.Roots != nil:
		s.fail("redis", errors.New("the URL has skip_verify, by which no certificate is checked; it must be left out where --redis-ca is given"))
	default:
		client.Apply(options.TLSConfig)
	}
	return options
}

// secureDatabase does the same for the database.
func (s *settings) secureDatabase(dsn store.DSN, c certificates) store.DSN {
	client, set := s.load("database", c)
	if !set || dsn.String() == "" {
		return dsn
	}
	secured, err := dsn.Secure(client)
	if err != nil {
		s.fail("database", err)
		return dsn
	}
	return secured
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
