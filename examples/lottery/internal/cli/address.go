package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/redisurl"
)

const (
	redisUsage    = "the URL of Redis, redis://user:password@host:port/db, redis+sentinel://…?master=NAME or redis+cluster://…; with TLS rediss"
	databaseUsage = "the URL of the database, sqlite:PATH, mysql://user:password@host:port/db or postgres://…"
)

// passwordUsage is the usage of a flag for a password. Other users of a machine can see flags.
const passwordUsage = "the password of %s, if the URL contains none; use the variable instead of the flag"

// redisFlags are the flags of the connection to Redis.
type redisFlags struct {
	urls *words

	username, password, sentinelPassword *string
	certificates
}

func (s *settings) redisFlags() redisFlags {
	return redisFlags{
		urls:             s.words("redis", "URL", redisUsage),
		username:         s.text("redis-username", "USER", "", "the user of redis-password; without it, the user default"),
		password:         s.text("redis-password", "PASSWORD", "", fmt.Sprintf(passwordUsage, "Redis")),
		sentinelPassword: s.text("redis-sentinel-password", "PASSWORD", "", fmt.Sprintf(passwordUsage, "the Sentinels")),
		certificates:     s.certificates("redis", "Redis"),
	}
}

// redis parses the URL of Redis, and adds passwords and certificates.
func (s *settings) redis(f redisFlags) *redis.UniversalOptions {
	if len(*f.urls) > 1 {
		s.fail("redis", errors.New("there are several URLs; it must be one, because several servers have no ledger to read"))
		return nil
	}
	return s.redisServers(f)[0]
}

// redisServers parses the URL of Redis, or those of several independent servers.
func (s *settings) redisServers(f redisFlags) (all []*redis.UniversalOptions) {
	if s.missing("redis", strings.Join(*f.urls, " ")) {
		return []*redis.UniversalOptions{nil}
	}
	if n := len(*f.urls); n%2 == 0 || n > 9 {
		s.fail("redis", fmt.Errorf("there are %d URLs; it must be one, or 3, 5, 7 or 9 of independent servers", n))
	}
	for _, text := range *f.urls {
		all = append(all, s.secureRedis(s.redisURL(f, text), f.certificates))
	}
	return all
}

func (s *settings) redisURL(f redisFlags, text string) *redis.UniversalOptions {
	options, err := redisurl.Parse(text)
	if err != nil {
		s.fail("redis", err)
		return nil
	}
	if *f.password != "" {
		if options.Password != "" {
			s.fail("redis-password", errTwoPasswords)
		}
		options.Username, options.Password = *f.username, *f.password
	} else if *f.username != "" {
		s.fail("redis-username", errors.New("the password is missing; it must be set as redis-password, or user and password must be in the URL"))
	}
	if *f.sentinelPassword != "" {
		switch {
		case options.MasterName == "":
			s.fail("redis-sentinel-password", errors.New("the URL names no Sentinels; with this password it must begin with redis+sentinel or rediss+sentinel"))
		case options.SentinelPassword != "":
			s.fail("redis-sentinel-password", errTwoPasswords)
		}
		options.SentinelPassword = *f.sentinelPassword
	}
	return options
}

var errTwoPasswords = errors.New("the URL also contains this password; only one of them must be set")

// databaseFlags are the flags of the connection to the database.
type databaseFlags struct {
	dsn, password *string
	certificates
}

func (s *settings) databaseFlags() databaseFlags {
	return databaseFlags{
		dsn:          s.text("database", "DSN", "", databaseUsage),
		password:     s.text("database-password", "PASSWORD", "", fmt.Sprintf(passwordUsage, "the database")),
		certificates: s.certificates("database", "the database"),
	}
}

// withPassword adds the password to the DSN.
func (s *settings) withPassword(f databaseFlags) string {
	if *f.password == "" {
		return *f.dsn
	}
	if strings.HasPrefix(*f.dsn, "sqlite:") {
		s.fail("database-password", errors.New("the DSN names a file, which has no password; it must not be set"))
	}
	u, err := url.Parse(*f.dsn)
	if err != nil || u.User == nil {
		return *f.dsn // ParseDSN returns the error
	}
	if _, has := u.User.Password(); has {
		s.fail("database-password", errTwoPasswords)
		return *f.dsn
	}
	u.User = url.UserPassword(u.User.Username(), *f.password)
	return u.String()
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
	if !set || options == nil {
		return options
	}
	if err := client.Secure(options.TLSConfig); err != nil {
		s.fail("redis", err)
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

// database parses the DSN of a database, and adds password and certificates. For SQLite, it
// checks that the file exists, or only its directory if mayBeNew is set.
func (s *settings) database(f databaseFlags, mayBeNew bool) store.DSN {
	return s.secureDatabase(s.dsn(s.withPassword(f), mayBeNew), f.certificates)
}

func (s *settings) dsn(value string, mayBeNew bool) store.DSN {
	if s.missing("database", value) {
		return store.DSN{}
	}
	dsn, err := store.ParseDSN(value)
	if err != nil {
		s.fail("database", err)
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
		s.fail("database", err)
	case mayBeNew && !info.IsDir():
		s.fail("database", errors.New(inputs.Excerpt(path)+" is a file; it must be a directory for the database file"))
	case !mayBeNew && info.IsDir():
		s.fail("database", errors.New(inputs.Excerpt(path)+" is a directory; it must be the database file"))
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
