package sqlcheck

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// dialFunc replaces how a driver connects.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// database is a new database of one kind.
type database struct {
	dialect sqlonce.Dialect
	path    string      // SQLite
	server  servers.SQL // the other kinds
}

// on runs the test for each kind of database.
func on(t *testing.T, test func(t *testing.T, db *database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, &database{dialect: sqlonce.SQLite, path: filepath.Join(t.TempDir(), "test.db")})
	})
	onServers(t, test)
}

// onServers runs the test for each kind that has a server, which can end sessions and can be cut off.
func onServers(t *testing.T, test func(t *testing.T, db *database)) {
	t.Helper()
	for dialect, start := range map[sqlonce.Dialect]func(testing.TB) servers.SQL{sqlonce.MySQL: servers.MariaDB, sqlonce.PostgreSQL: servers.PostgreSQL} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			test(t, &database{dialect: dialect, server: start(t)})
		})
	}
}

// pool opens a separate pool, like another process. dial may be nil.
func (d *database) pool(t *testing.T, dial dialFunc) *sql.DB {
	t.Helper()
	var db *sql.DB
	switch d.dialect {
	case sqlonce.SQLite:
		db = testenv.Call(sql.Open("sqlite", "file:"+d.path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")).Must(t)
	case sqlonce.MySQL:
		cfg := mysql.NewConfig()
		cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(d.server.Host, strconv.Itoa(d.server.Port))
		cfg.User, cfg.Passwd, cfg.DBName = d.server.User, d.server.Password, d.server.Database
		cfg.Logger = &mysql.NopLogger{}
		// Affected rows are then the matched rows. sqlonce must not depend on the difference.
		cfg.ClientFoundRows = true
		if dial != nil {
			cfg.DialFunc = dial
		}
		db = sql.OpenDB(testenv.Call(mysql.NewConnector(cfg)).Must(t))
	case sqlonce.PostgreSQL:
		cfg, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s:%s@%s:%d/%s?sslmode=disable",
			d.server.User, d.server.Password, d.server.Host, d.server.Port, d.server.Database))
		testenv.Must(t, err)
		if dial != nil {
			cfg.DialFunc = pgconn.DialFunc(dial)
		}
		db = stdlib.OpenDB(*cfg)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// node is the view of one process: a pool and a Once. The tables exist, and a table effects(id, job, tick) for fn.
type node struct {
	*database
	db   *sql.DB
	once *sqlonce.Once
}

func (d *database) node(t *testing.T, cfg sqlonce.Config, dial dialFunc) *node {
	t.Helper()
	n := &node{database: d, db: d.pool(t, dial)}
	n.once = testenv.Call(sqlonce.New(n.db, d.dialect, cfg)).Must(t)
	testenv.Must(t, n.once.CreateTables(t.Context()))
	// The table has no unique key, so a double effect is visible and not refused.
	table := "CREATE TABLE IF NOT EXISTS effects (id BIGINT NOT NULL, job VARCHAR(200) NOT NULL, who VARCHAR(50) NOT NULL)"
	if d.dialect == sqlonce.MySQL {
		table += " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	}
	n.exec(t, table)
	return n
}

// sql converts placeholders to the dialect's form.
func (d *database) sql(query string) string {
	if d.dialect != sqlonce.PostgreSQL {
		return query
	}
	for i := 1; strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
	}
	return query
}

func (n *node) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := n.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (n *node) number(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	var v int64
	if err := n.db.QueryRowContext(t.Context(), n.sql(query), args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// effect returns an fn that writes one row.
func (n *node) effect(run sqlonce.Marker) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error { return n.write(ctx, tx, run) }
}

func (n *node) write(ctx context.Context, tx *sql.Tx, run sqlonce.Marker) error {
	_, err := tx.ExecContext(ctx, n.sql("INSERT INTO effects (id, job, who) VALUES (?, ?, ?)"), run.Tick.UnixMilli(), run.Job, run.Holder)
	return err
}

// expect fails unless the run's tick has exactly these numbers of rows and markers.
func (n *node) expect(t *testing.T, run sqlonce.Marker, rows, markers int64) {
	t.Helper()
	got := n.number(t, "SELECT COUNT(*) FROM effects WHERE job = ? AND id = ?", run.Job, run.Tick.UnixMilli())
	testenv.Equal(t, "rows", got, rows)
	testenv.Equal(t, "markers", n.markers(t, run), markers)
}

func (n *node) markers(t *testing.T, run sqlonce.Marker) int64 {
	t.Helper()
	id := singleton.RunID{Tick: run.Tick, Triggered: run.Triggered}
	return n.number(t, "SELECT COUNT(*) FROM noonlock_markers WHERE job = ? AND tick = ?", run.Job, id.Key())
}

// noon returns a run at the nth noon. Its holder is named after the token.
func noon(n int, token uint64) sqlonce.Marker {
	return sqlonce.Marker{
		Job: "lottery", Tick: time.Date(2026, 1, 1+n, 12, 0, 0, 0, time.UTC),
		Attempt: 1, Token: token, Holder: "holder-" + strconv.FormatUint(token, 10),
	}
}

// apply runs an effect and checks its result.
func (n *node) apply(t *testing.T, run sqlonce.Marker, want bool) {
	t.Helper()
	applied, err := n.once.Do(t.Context(), run, n.effect(run))
	if err != nil || applied != want {
		t.Fatalf("Do with token %d = %v, %v; want %v, nil", run.Token, applied, err, want)
	}
}
