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
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/noonlock/noonlock/internal/console/login"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

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
//	sqlite:PATH                                a file, created if missing
//	mysql://user:password@host:port/database   MySQL and MariaDB, with the parameters of the driver
//
// password is for a URL without one. With certificates, TLS is required, and the server is
// checked. Errors name the rule and no part of the address, since any part may belong to a password.
func Parse(text, password string, certificates login.Files) (Address, error) {
	secure := certificates.Set()
	if path, ok := strings.CutPrefix(text, "sqlite:"); ok {
		if password != "" || secure {
			return Address{}, errors.New("sqlite: is a file; a password and certificates must not be set")
		}
		return file(path)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" {
		return Address{}, errors.New("it must be sqlite:PATH, or a URL that begins with mysql://, with special characters in user and password percent-encoded, such as %40 for @")
	}
	database := strings.TrimPrefix(u.Path, "/")
	if u.User.Username() == "" || u.Hostname() == "" || database == "" || strings.ContainsAny(database, "/@") || u.Fragment != "" {
		return Address{}, errors.New("it must name a user, a host and a database, as in mysql://user:password@host/database")
	}
	if _, has := u.User.Password(); has && password != "" {
		return Address{}, errors.New("it contains a password, and another one is set apart from it; one of them must be left out")
	} else if password != "" {
		u.User = url.UserPassword(u.User.Username(), password)
	}
	if parameters := u.Query(); secure && !parameters.Has("tls") {
		parameters.Set("tls", "true")
		u.RawQuery = parameters.Encode()
	} else if secure && parameters.Get("tls") != "true" {
		return Address{}, errors.New("its parameter tls must be true or absent if certificates are set")
	}
	return server(u, certificates)
}

func file(path string) (Address, error) {
	if path == "" || strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "//") {
		return Address{}, errors.New("it must name a file, as in sqlite:lottery.db")
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return Address{}, fmt.Errorf("the directory of the file, %q, does not exist; it must exist", filepath.Dir(path))
	}
	uri := "file:" + (&url.URL{Path: filepath.ToSlash(filepath.Clean(path))}).EscapedPath() + "?_pragma=busy_timeout(10000)"
	return Address{sqlonce.SQLite, "sqlite:" + path, func(readOnly bool) (*sql.DB, error) {
		if readOnly {
			return sql.Open("sqlite", uri+"&mode=ro")
		}
		return sql.Open("sqlite", uri+"&_pragma=journal_mode(WAL)") // readers do not wait for the writer
	}}, nil
}

func server(u *url.URL, certificates login.Files) (Address, error) {
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	config, err := mysql.ParseDSN("tcp(" + host + ")" + u.EscapedPath() + "?" + u.RawQuery)
	if err != nil {
		return Address{}, errors.New("MySQL's driver does not accept its host or one of its parameters")
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true    // one round trip per statement instead of two
	config.Logger = &mysql.NopLogger{} // the driver also returns the errors that it logs
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	if err := certificates.Apply(config.TLS); err != nil {
		return Address{}, err
	}
	shown := url.URL{Scheme: u.Scheme, User: url.User(u.User.Username()), Host: u.Host, Path: u.Path}
	connector, err := mysql.NewConnector(config)
	return Address{sqlonce.MySQL, shown.String(), func(bool) (*sql.DB, error) { return sql.OpenDB(connector), nil }}, err
}
