// Package store stores the lottery's data in SQLite, MySQL or MariaDB.
//
//	draws      job, tick, attempt, token, drawn_by, drawn_at   PRIMARY KEY (job, tick)
//	winners    job, tick, position, entrant_id                 PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id)
//	origin     one, id                                         PRIMARY KEY (one)
//
// tick is the key of a run: its noon in milliseconds since the Unix epoch, negative for a triggered run.
// position counts from 1. origin has one row: one is 1, and id is the random id of this database. The tables
// of sqlonce are in the same database.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Store is the lottery's database. It is safe for concurrent use.
type Store struct {
	address Address
	db      *sql.DB
	Once    *sqlonce.Once // its transaction writes draws
}

// Open connects, and creates the tables that are missing. All replicas may call Open at once. It does not retry. The
// database ends the transaction of a frozen replica after about one lease, because another replica takes over then.
func Open(ctx context.Context, at Address, lease time.Duration) (*Store, error) {
	s, err := at.connect(false, sqlonce.Config{IdleTimeout: max(lease.Round(time.Second), time.Second)})
	if err != nil {
		return nil, err
	}
	if err = s.Once.CreateTables(ctx); err == nil {
		err = s.createTables(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening %s: %w", at, err)
	}
	return s, nil
}

// View connects for reading. It creates nothing, so an account that may only read is enough.
func View(at Address) (*Store, error) { return at.connect(true, sqlonce.Config{}) }

func (a Address) connect(readOnly bool, cfg sqlonce.Config) (*Store, error) {
	db, err := a.open(readOnly)
	if err != nil {
		return nil, err
	}
	// With fewer idle than open connections, almost every draw would open a new one.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	once, err := sqlonce.New(db, a.dialect, cfg)
	if err != nil {
		db.Close()
		return nil, err
	}
	return &Store{address: a, db: db, Once: once}, nil
}

// String returns the address of the database.
func (s *Store) String() string { return s.address.shown }

// Close closes all connections.
func (s *Store) Close() error { return s.db.Close() }

func (s *Store) createTables(ctx context.Context) error {
	options := ""
	if s.address.dialect == sqlonce.MySQL {
		options = " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" // ids that differ in case are different
	}
	for _, table := range []string{
		"draws (job VARCHAR(255) NOT NULL, tick BIGINT NOT NULL, attempt INT NOT NULL, token BIGINT NOT NULL, " +
			"drawn_by VARCHAR(255) NOT NULL, drawn_at BIGINT NOT NULL, PRIMARY KEY (job, tick))",
		"winners (job VARCHAR(255) NOT NULL, tick BIGINT NOT NULL, position INT NOT NULL, entrant_id VARCHAR(255) NOT NULL, " +
			"PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id))",
		"origin (one INT NOT NULL, id VARCHAR(255) NOT NULL, PRIMARY KEY (one))",
	} {
		if _, err := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+options); err != nil {
			return err
		}
	}
	const insert = "INSERT INTO origin (one, id) SELECT 1, ? FROM (SELECT 1 AS one) AS new WHERE NOT EXISTS (SELECT 1 FROM origin)"
	_, err := s.db.ExecContext(ctx, insert, rand.Text())
	return err
}

// selectOrigin selects the random id of the database, and its place, which differs in a copy of the database. MySQL
// executes the comment; MariaDB, which has no @@server_uuid, does not.
var selectOrigin = map[sqlonce.Dialect]string{
	sqlonce.SQLite: "SELECT id || ' ' || file FROM origin, pragma_database_list WHERE name = 'main'",
	sqlonce.MySQL:  "SELECT CONCAT_WS(' ', id, COALESCE(/*!50700 @@server_uuid, */ CONCAT(@@hostname, ':', @@port)), DATABASE()) FROM origin",
}

// Origin returns a name that no copy of the database has. It reads in the transaction tx, unless tx is nil.
func (s *Store) Origin(ctx context.Context, tx *sql.Tx) (name string, err error) {
	query := s.db.QueryRowContext
	if tx != nil {
		query = tx.QueryRowContext
	}
	err = query(ctx, selectOrigin[s.address.dialect]).Scan(&name)
	return name, err
}

// Check reports whether a draw could be recorded now. A ping would also succeed on a server that is
// read-only, or without the tables.
func (s *Store) Check(ctx context.Context) error {
	err := s.Once.Check(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.Record(ctx, tx, singleton.Run{RunID: singleton.RunID{Tick: time.Now()}, Job: "check-" + rand.Text(), Token: 1}, []string{"nobody"})
	})
	if err != nil && !errors.Is(err, sqlonce.ErrConflict) { // after a conflict, another replica draws
		return fmt.Errorf("a draw could not be recorded: %w", err)
	}
	return nil
}

// Record writes the draw of a run and its winners.
func (s *Store) Record(ctx context.Context, tx *sql.Tx, run singleton.Run, winners []string) error {
	key := run.RunID.Key()
	_, err := tx.ExecContext(ctx, "INSERT INTO draws (job, tick, attempt, token, drawn_by, drawn_at) VALUES (?, ?, ?, ?, ?, ?)",
		run.Job, key, run.Attempt, int64(run.Token), run.Holder, time.Now().UnixMilli())
	if err != nil {
		return err
	}
	for i, id := range winners {
		_, err := tx.ExecContext(ctx, "INSERT INTO winners (job, tick, position, entrant_id) VALUES (?, ?, ?, ?)", run.Job, key, i+1, id)
		if err != nil {
			return err
		}
	}
	return nil
}

// Draw is the draw of a run, with its winners in the order of their positions.
type Draw struct {
	singleton.RunID
	Attempt int
	Token   uint64
	DrawnBy string
	DrawnAt time.Time // by the clock of the replica
	Winners []string
}

// Draws returns the draws of the job with since ≤ Tick < until in the order of Tick.
func (s *Store) Draws(ctx context.Context, job string, since, until time.Time) (draws []Draw, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT d.tick, d.attempt, d.token, d.drawn_by, d.drawn_at, w.entrant_id "+
		"FROM draws d LEFT JOIN winners w ON w.job = d.job AND w.tick = d.tick "+
		"WHERE d.job = ? AND ABS(d.tick) >= ? AND ABS(d.tick) < ? ORDER BY ABS(d.tick), d.tick, w.position",
		job, since.UnixMilli(), until.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("reading the draws: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var d Draw
		var key, drawn int64
		var winner sql.NullString
		if err := rows.Scan(&key, &d.Attempt, &d.Token, &d.DrawnBy, &drawn, &winner); err != nil {
			return nil, fmt.Errorf("reading the draws: %w", err)
		}
		d.RunID, d.DrawnAt = singleton.RunOf(key), time.UnixMilli(drawn)
		if len(draws) == 0 || draws[len(draws)-1].Key() != key {
			draws = append(draws, d)
		}
		if last := &draws[len(draws)-1]; winner.Valid {
			last.Winners = append(last.Winners, winner.String)
		}
	}
	return draws, rows.Err()
}
