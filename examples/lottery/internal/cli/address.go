package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/certs"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/redisurl"
)

const (
	redisUsage    = "the URL of Redis, redis://user:password@host:port/db, redis+sentinel://…?master=NAME or redis+cluster://…; with TLS rediss"
	databaseUsage = "the URL of the database, sqlite:PATH, mysql://user:password@host:port/db or postgres://…"
)

// redis parses the URL of Redis.
func (s *settings) redis(name, value string) *redis.UniversalOptions {
	if s.missing(name, value) {
		return nil
	}
	options, err := redisurl.Parse(value)
	if err != nil {
		s.fail(name, err)
	}
	return options
}

// certificates are the flags that name files for TLS.
type certificates struct{ ca, cert, key *string }

// certificates declares the flags --NAME-ca, --NAME-cert and --NAME-key.
func (s *settings) certificates(name, whose string) certificates {
	return certificates{
		ca:   s.text(name+"-ca", "FILE", "", "PEM file of the certificate authorities for "+whose+", instead of the system's"),
		cert: s.text(name+"-cert", "FILE", "", "PEM file of the client certificate for "+whose+"; reloaded for each connection"),
		key:  s.text(name+"-key", "FILE", "", "PEM file of the private key of the client certificate for "+whose),
	}
}

// load reads the files. set reports that files are set and valid.
func (s *settings) load(name string, c certificates) (client certs.Client, set bool) {
	files := certs.Files{CA: *c.ca, Cert: *c.cert, Key: *c.key}
	client, err := files.Load()
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		s.fail(name+"-"+wrong.File, err)
	}
	return client, err == nil && files.Set()
}

// secureRedis applies the certificates to the connections to Redis.
func (s *settings) secureRedis(options *redis.UniversalOptions, c certificates) *redis.UniversalOptions {
	client, set := s.load("redis", c)
	switch {
	case !set || options == nil:
	case options.TLSConfig == nil:
		s.fail("redis", errors.New("the URL does not use TLS; with certificates it must begin with rediss"))
	case options.TLSConfig.InsecureSkipVerify && client.Roots != nil:
		s.fail("redis", errors.New("the URL has skip_verify, which disables the check of certificates; it must be absent if --redis-ca is set"))
	default:
		client.Apply(options.TLSConfig)
	}
	return options
}

// secureDatabase applies the certificates to the connections to the database.
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

// database parses the DSN of a database. For SQLite, it checks that the file exists, or only
// its directory if mayBeNew is set.
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
		s.fail(name, errors.New(inputs.Excerpt(path)+" is a file; it must be a directory for the database file"))
	case !mayBeNew && info.IsDir():
		s.fail(name, errors.New(inputs.Excerpt(path)+" is a directory; it must be the database file"))
	}
	return dsn
}

// listenAt parses the address of the HTTP server; "" is off.
func (s *settings) listenAt(name, value string) string {
	if value == "off" {
		return ""
	}
	if _, port, err := net.SplitHostPort(value); err != nil || port != "0" && (port == "" || !inputs.IsPort(port)) {
		s.refuse(name, value, "an address such as :8080 or 127.0.0.1:8080, or off")
	}
	return value
}

// address returns the addresses of Redis and the number of its database.
func address(options *redis.UniversalOptions) string {
	return inputs.Hosts(options) + "/" + strconv.Itoa(options.DB)
}
