package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// ErrAddress is matched by every error of Parse.
var ErrAddress = errors.New("invalid address of a database")

// Address is the address of a database. Its text has no password.
type Address struct {
	dialect sqlonce.Dialect
	shown   string
	open    func(readOnly bool) (*sql.DB, error)
}

// String returns the address without password and parameters.
func (a Address) String() string { return a.shown }

// Parse parses the address of a database, and opens no connection.
//
//	sqlite:PATH                                   a file, created if missing
//	mysql://user:password@host:port/database      MySQL and MariaDB, with the parameters of the driver
//	postgres://user:password@host:port/database   PostgreSQL, with the parameters of libpq
//
// The password may be apart from the URL. With certificates, TLS is required, and the server is
// checked. Errors name the rule and no part of the address, since each may be part of a password.
func Parse(text, password string, with certs.Client) (Address, error) {
	secure := with.Roots != nil || with.Certificate != nil
	if path, ok := strings.CutPrefix(text, "sqlite:"); ok {
		if password != "" || secure {
			return Address{}, refused("sqlite: is a file; a password and certificates must not be set")
		}
		return file(path)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return Address{}, refused("it must be sqlite:PATH, or a URL that begins with mysql:// or postgres://, with special characters in user and password percent-encoded, such as %%40 for @")
	}
	database := strings.TrimPrefix(u.Path, "/")
	if u.User.Username() == "" || u.Hostname() == "" || database == "" || strings.ContainsAny(database, "/@") || u.Fragment != "" {
		return Address{}, refused("it must name a user, a host and a database, as in %s://user:password@host/database", u.Scheme)
	}
	if _, has := u.User.Password(); has && password != "" {
		return Address{}, refused("it contains a password, and another one is set apart from it; one of them must be left out")
	} else if password != "" {
		u.User = url.UserPassword(u.User.Username(), password)
	}
	parameter, value, parse := "sslmode", "verify-full", postgreSQL
	if u.Scheme == "mysql" {
		parameter, value, parse = "tls", "true", mariaDB
	}
	if parameters := u.Query(); secure && !parameters.Has(parameter) {
		parameters.Set(parameter, value)
		u.RawQuery = parameters.Encode()
	} else if secure && parameters.Get(parameter) != value {
		return Address{}, refused("its parameter %s must be %s or absent if certificates are set", parameter, value)
	}
	at, err := parse(u, with)
	at.shown = (&url.URL{Scheme: u.Scheme, User: url.User(u.User.Username()), Host: u.Host, Path: u.Path}).String()
	return at, err
}

func file(path string) (Address, error) {
	if path == "" || strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "//") {
		return Address{}, refused("it must name a file, as in sqlite:lottery.db")
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return Address{}, refused("the directory of the file, %q, does not exist; it must exist", filepath.Dir(path))
	}
	uri := "file:" + (&url.URL{Path: filepath.ToSlash(filepath.Clean(path))}).EscapedPath() + "?_pragma=busy_timeout(10000)"
	return Address{sqlonce.SQLite, "sqlite:" + path, func(readOnly bool) (*sql.DB, error) {
		if readOnly {
			return sql.Open("sqlite", uri+"&mode=ro")
		}
		return sql.Open("sqlite", uri+"&_pragma=journal_mode(WAL)") // readers do not wait for the writer
	}}, nil
}

func mariaDB(u *url.URL, with certs.Client) (Address, error) {
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	config, err := mysql.ParseDSN("tcp(" + host + ")" + u.EscapedPath() + "?" + u.RawQuery)
	if err != nil {
		return Address{}, refused("MySQL's driver does not accept its host or one of its parameters")
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true    // one round trip per statement instead of two
	config.Logger = &mysql.NopLogger{} // the driver returns these errors, too
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	if config.TLS != nil {
		with.Apply(config.TLS)
	}
	return Address{dialect: sqlonce.MySQL, open: func(bool) (*sql.DB, error) {
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}}, nil
}

func postgreSQL(u *url.URL, with certs.Client) (Address, error) {
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return Address{}, refused("PostgreSQL's driver does not accept its port or one of its parameters")
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, 10*time.Second)
	for _, each := range append(config.Fallbacks, &pgconn.FallbackConfig{TLSConfig: config.TLSConfig}) { // each address of the host
		if each.TLSConfig != nil {
			with.Apply(each.TLSConfig)
		}
	}
	return Address{dialect: sqlonce.PostgreSQL, open: func(bool) (*sql.DB, error) { return stdlib.OpenDB(*config), nil }}, nil
}

func refused(rule string, args ...any) error {
	return fmt.Errorf("%w: "+rule, append([]any{ErrAddress}, args...)...)
}
