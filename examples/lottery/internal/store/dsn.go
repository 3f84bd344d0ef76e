package store

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// ErrDSN is wrapped by all errors for an invalid DSN.
var ErrDSN = errors.New("store: invalid database DSN")

// DSN is the address of a database. ParseDSN creates it. Its text never contains the password.
type DSN struct {
	dialect  sqlonce.Dialect
	shown    string
	path     string          // SQLite
	mysql    *mysql.Config   // MySQL, MariaDB
	postgres *pgx.ConnConfig // PostgreSQL
}

// ParseDSN parses the address of a database. It opens no connection.
//
//	sqlite:PATH                                a file, created if missing; its directory must exist
//	mysql://user:password@host:port/database   MySQL and MariaDB; port 3306; ?tls=true, skip-verify, preferred, false
//	postgres://user:password@host:port/database   PostgreSQL, with the parameters of libpq; also postgresql://
//
// Special characters in user and password must be percent-encoded. Errors name the rule but contain no part of the DSN,
// since each part may be part of the password.
func ParseDSN(dsn string) (DSN, error) {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return parseSQLite(path)
	}
	scheme, _, _ := strings.Cut(dsn, "://")
	switch scheme {
	case "mysql", "postgres", "postgresql":
	default:
		return DSN{}, refused("it must begin with sqlite:, mysql:// or postgres://")
	}
	u, err := url.Parse(dsn)
	// The error of url.Parse contains the URL.
	if err != nil || u.Fragment != "" || u.Opaque != "" {
		return DSN{}, refused("it must be a URL, with special characters in user and password percent-encoded, such as %%40 for @")
	}
	database := strings.TrimPrefix(u.Path, "/")
	switch {
	case u.User.Username() == "":
		return DSN{}, refused("it must name a user, as in %s://user:password@host/database", scheme)
	case u.Hostname() == "":
		return DSN{}, refused("it must name a host, as in %s://user:password@host/database", scheme)
	case database == "" || strings.ContainsAny(database, "/@"):
		return DSN{}, refused("it must name one database, as in %s://user:password@host/database", scheme)
	}
	if scheme == "mysql" {
		return parseMySQL(u, database)
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		// Not wrapped: the error contains the DSN, and may not hide all of the password.
		return DSN{}, refused("PostgreSQL's driver does not accept its port or one of its parameters")
	}
	return DSN{dialect: sqlonce.PostgreSQL, shown: show("postgres", u, database), postgres: config}, nil
}

func parseSQLite(path string) (DSN, error) {
	switch {
	case path == "":
		return DSN{}, refused("it must name a file, as in sqlite:lottery.db")
	case strings.HasPrefix(path, ":memory:"):
		return DSN{}, refused("it must name a file, since each connection has its own in-memory database")
	case strings.HasPrefix(path, "//"):
		return DSN{}, refused("it must be sqlite:PATH, without // before the path")
	case strings.ContainsRune(path, 0):
		return DSN{}, refused("the path must not contain a NUL byte")
	}
	return DSN{dialect: sqlonce.SQLite, shown: "sqlite:" + path, path: path}, nil
}

func parseMySQL(u *url.URL, database string) (DSN, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return DSN{}, refused("its parameters must be valid URL parameters")
	}
	tls := query.Get("tls")
	query.Del("tls")
	if len(query) > 0 {
		return DSN{}, refused("mysql:// supports only the parameter tls")
	}
	switch tls {
	case "", "true", "false", "skip-verify", "preferred":
	default:
		return DSN{}, refused("tls must be true, false, skip-verify or preferred")
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return DSN{}, refused("its port must be a number from 1 to 65535")
	}
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
	config.User, config.DBName, config.TLSConfig = u.User.Username(), database, tls
	config.Passwd, _ = u.User.Password()
	config.Timeout = dialTimeout
	// One round trip per statement instead of two.
	config.InterpolateParams = true
	// The driver also returns the errors that it would log.
	config.Logger = &mysql.NopLogger{}
	return DSN{dialect: sqlonce.MySQL, shown: show("mysql", u, database), mysql: config}, nil
}

const dialTimeout = 10 * time.Second

// show returns the URL without password and parameters, which may also contain one.
func show(scheme string, u *url.URL, database string) string {
	return (&url.URL{Scheme: scheme, User: url.User(u.User.Username()), Host: u.Host, Path: "/" + database}).String()
}

func refused(rule string, args ...any) error {
	return fmt.Errorf("%w: "+rule, append([]any{ErrDSN}, args...)...)
}

// Secure returns the DSN of the same database with certificates for TLS. TLS is then required: a DSN without a TLS
// parameter gets tls=true or sslmode=verify-full. It returns an error for a DSN with a conflicting parameter, and for
// SQLite.
func (d DSN) Secure(client certs.Client) (DSN, error) {
	switch d.dialect {
	case sqlonce.MySQL:
		config := d.mysql.Clone()
		host, _, _ := net.SplitHostPort(config.Addr)
		switch config.TLSConfig {
		case "", "true":
			config.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
		case "skip-verify":
			if client.Roots != nil {
				return DSN{}, refused("its parameter tls must be true or absent if certificate authorities are set")
			}
			config.TLS = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} // the DSN requests it
		default:
			return DSN{}, refused("its parameter tls must be true or absent if certificates are set")
		}
		config.TLSConfig = ""
		client.Apply(config.TLS)
		d.mysql = config
	case sqlonce.PostgreSQL:
		config, err := withTLS(d.postgres)
		if err != nil {
			return DSN{}, err
		}
		unchecked := config.TLSConfig != nil && config.TLSConfig.InsecureSkipVerify && config.TLSConfig.VerifyPeerCertificate == nil
		plain := config.TLSConfig == nil || slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
		if plain || unchecked && client.Roots != nil {
			return DSN{}, refused("its parameter sslmode must be verify-full, verify-ca or absent if certificates are set")
		}
		// In place: the check of verify-ca uses the configuration for which it was created, not a copy.
		client.Apply(config.TLSConfig)
		for _, fallback := range config.Fallbacks {
			client.Apply(fallback.TLSConfig)
		}
		d.postgres = config
	case sqlonce.SQLite:
		return DSN{}, refused("sqlite: is a file; certificates must not be set")
	}
	return d, nil
}

// withTLS sets sslmode=verify-full unless the DSN or the environment sets sslmode.
func withTLS(config *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	u, err := url.Parse(config.ConnString())
	if err != nil {
		return nil, refused("it is not a URL")
	}
	query := u.Query()
	if query.Get("sslmode") == "" && os.Getenv("PGSSLMODE") == "" {
		query.Set("sslmode", "verify-full")
		u.RawQuery = query.Encode()
	}
	config, err = pgx.ParseConfig(u.String())
	if err != nil {
		return nil, refused("PostgreSQL's driver does not accept one of its parameters")
	}
	return config, nil
}

// String returns the DSN without its password.
func (d DSN) String() string { return d.shown }

// GoString returns the DSN without its password.
func (d DSN) GoString() string { return "store.DSN(" + d.shown + ")" }

// MarshalText returns the DSN without its password, for loggers.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.shown), nil }

// openToRead opens a pool that only reads. If SQLite cannot write to the directory of its file, for example on a
// read-only file system, the file is opened as immutable. A non-empty journal means that it is in use, which is an error.
func (d DSN) openToRead(ctx context.Context) (*sql.DB, error) {
	if d.dialect != sqlonce.SQLite {
		return d.open()
	}
	db, err := sql.Open("sqlite", d.file()+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	if _, err = db.ExecContext(ctx, "SELECT COUNT(*) FROM sqlite_master"); err == nil {
		return db, nil
	}
	db.Close()
	if journal, err := os.Stat(d.path + "-wal"); err == nil && journal.Size() > 0 {
		return nil, fmt.Errorf("store: cannot read %q without write permission for its directory while %q is not empty", d.path, d.path+"-wal")
	}
	return sql.Open("sqlite", d.file()+"?mode=ro&immutable=1")
}

// file returns the URI of SQLite's file.
func (d DSN) file() string {
	return "file:" + (&url.URL{Path: filepath.ToSlash(filepath.Clean(d.path))}).EscapedPath()
}

// unwritable returns an error if this process cannot write to the file of SQLite, or cannot create files beside it. The
// errors of SQLite do not name the user.
func (d DSN) unwritable() error {
	if d.dialect != sqlonce.SQLite {
		return nil
	}
	folder := filepath.Dir(d.path)
	path := folder
	probe, err := os.CreateTemp(folder, ".lottery-")
	if err == nil {
		probe.Close()
		_ = os.Remove(probe.Name()) // an empty file that SQLite ignores
		path = d.path
		if probe, err = os.OpenFile(path, os.O_RDWR, 0); err == nil {
			probe.Close()
		}
	}
	var failed *fs.PathError
	if err == nil || errors.Is(err, fs.ErrNotExist) || !errors.As(err, &failed) {
		return nil
	}
	return fmt.Errorf("uid %d with gid %d cannot write to %q: %w; set owner, group or mode of the volume, or in the chart podSecurityContext.fsGroup",
		os.Getuid(), os.Getgid(), path, failed.Err)
}

// open creates the pool. It opens no connection yet.
func (d DSN) open() (*sql.DB, error) {
	switch d.dialect {
	case sqlonce.SQLite:
		folder := filepath.Dir(d.path)
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("store: the directory %q of the database file does not exist", folder)
		}
		// With WAL, readers do not wait for the writer.
		return sql.Open("sqlite", d.file()+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	case sqlonce.MySQL:
		connector, err := mysql.NewConnector(d.mysql)
		if err != nil {
			return nil, refused("MySQL's driver does not accept it")
		}
		return sql.OpenDB(connector), nil
	case sqlonce.PostgreSQL:
		config := d.postgres.Copy()
		if config.ConnectTimeout == 0 {
			config.ConnectTimeout = dialTimeout
		}
		return stdlib.OpenDB(*config), nil
	default:
		return nil, refused("it must come from ParseDSN")
	}
}
