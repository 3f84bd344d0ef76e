package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// LoadEntrants updates the table of entrants to match the list. It adds new entrants and sets their eligibility. An
// entrant that is not in the list stays in the table as not eligible, so that former winners remain known. Draws and
// winners do not change.
//
// LoadEntrants first checks the list. The update is one transaction, so a draw sees all of it or none. All replicas may
// call it concurrently and repeatedly. If the table already matches the list, nothing is written. On SQLite, draws wait
// during an update. Memory is 16 bytes per entrant.
func (s *Store) LoadEntrants(ctx context.Context, list entrants.List) (entrants.Totals, error) {
	totals, err := list.Check()
	if err != nil {
		return entrants.Totals{}, err
	}
	l := loading{store: s, list: list, totals: totals}
	err = l.compare(ctx)
	if errors.Is(err, errDiffers) {
		err = l.change(ctx)
	}
	if err != nil {
		return entrants.Totals{}, fmt.Errorf("store: loading the entrants: %w", err)
	}
	return totals, nil
}

// errDiffers ends a comparison at the first difference.
var errDiffers = errors.New("the table differs from the list")

// batch is the number of rows in one statement.
const batch = 500

// chunk is the number of entrants that are sorted before they are written, so that adjacent index entries are written together.
const chunk = 100 * batch

// loading updates the table to match one list.
type loading struct {
	store  *Store
	list   entrants.List
	totals entrants.Totals
}

// compare returns errDiffers unless a snapshot of the table matches the list.
func (l *loading) compare(ctx context.Context) error {
	tx, err := l.store.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing is written
	if err := l.each(func(part []entrants.Entrant) error {
		differing, err := l.differing(ctx, tx, part)
		if err == nil && len(differing) > 0 {
			err = errDiffers
		}
		return err
	}); err != nil {
		return err
	}
	return l.surplus(ctx, tx)
}

// surplus returns errDiffers if the table has more eligible entrants than the list. If all entrants of the list match the
// table, equal numbers mean equal sets.
func (l *loading) surplus(ctx context.Context, tx *sql.Tx) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM entrants WHERE eligible").Scan(&n); err != nil {
		return err
	}
	if n != l.totals.Eligible {
		return errDiffers
	}
	return nil
}

// change writes the differences.
func (l *loading) change(ctx context.Context) error {
	conn, err := l.store.db.Conn(ctx)
	if err != nil {
		return err
	}
	// The connection is discarded, and with it its settings and the lock, in every case.
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // the error only discards the connection
	tx, err := l.begin(ctx, conn)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
	if err := l.each(func(part []entrants.Entrant) error { return l.write(ctx, tx, part) }); err != nil {
		return err
	}
	// If two ids have the same hash, a round can miss one of them. The next round uses another seed.
	for range 10 {
		if err = l.surplus(ctx, tx); err == nil {
			return tx.Commit()
		}
		if !errors.Is(err, errDiffers) {
			return err
		}
		if err := l.retire(ctx, tx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w, so the list has changed since it was checked", err)
}

// begin starts a transaction that excludes the updates of other replicas.
func (l *loading) begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	switch l.store.dialect {
	case sqlonce.MySQL:
		// Lock before the transaction, whose snapshot must include the commits of other replicas.
		var got sql.NullInt64
		err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(MD5(CONCAT('noonlock/', DATABASE(), '/entrants')), 600)").Scan(&got)
		if err != nil {
			return nil, err
		}
		if got.Int64 != 1 {
			return nil, errors.New("other replicas have been loading entrants for 10 minutes")
		}
	case sqlonce.SQLite:
		var now int64
		if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout = 600000").Scan(&now); err != nil {
			return nil, err
		}
	case sqlonce.PostgreSQL: // see lock
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err = l.store.lock(ctx, tx, lockEntrants); err == nil && l.store.dialect == sqlonce.SQLite {
		// This takes the write lock before the first read, and changes nothing.
		_, err = tx.ExecContext(ctx, "DELETE FROM entrants WHERE FALSE")
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// each calls fn with the entrants of the list in parts of at most batch. Each chunk is sorted.
func (l *loading) each(fn func(part []entrants.Entrant) error) error {
	sorted := make([]entrants.Entrant, 0, chunk)
	flush := func() error {
		slices.SortFunc(sorted, func(a, b entrants.Entrant) int { return strings.Compare(a.ID, b.ID) })
		for part := range slices.Chunk(sorted, batch) {
			if err := fn(part); err != nil {
				return err
			}
		}
		sorted = sorted[:0]
		return nil
	}
	err := l.list.Each(func(e entrants.Entrant) error {
		if sorted = append(sorted, e); len(sorted) < chunk {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// differing returns the entrants of part that are missing in the table or differ there.
func (l *loading) differing(ctx context.Context, tx *sql.Tx, part []entrants.Entrant) ([]entrants.Entrant, error) {
	args := make([]any, len(part))
	for i, e := range part {
		args[i] = e.ID
	}
	known := make(map[string]bool, len(part))
	err := l.store.each(ctx, tx, func(rows *sql.Rows) error {
		var id string
		var eligible bool
		err := rows.Scan(&id, &eligible)
		known[id] = eligible
		return err
	}, "SELECT id, eligible FROM entrants WHERE id IN "+values(1, len(part)), args...)
	if err != nil {
		return nil, err
	}
	var differing []entrants.Entrant
	for _, e := range part {
		if eligible, ok := known[e.ID]; !ok || eligible != e.Eligible {
			differing = append(differing, e)
		}
	}
	return differing, nil
}

func (l *loading) write(ctx context.Context, tx *sql.Tx, part []entrants.Entrant) error {
	differing, err := l.differing(ctx, tx, part)
	if err != nil || len(differing) == 0 {
		return err
	}
	args := make([]any, 0, 2*len(differing))
	for _, e := range differing {
		args = append(args, e.ID, e.Eligible)
	}
	query := "INSERT INTO entrants (id, eligible) VALUES " + values(len(differing), 2)
	if l.store.dialect == sqlonce.MySQL {
		// All these rows differ, so an update inverts eligible. VALUES(eligible) is deprecated on MySQL.
		query += " ON DUPLICATE KEY UPDATE eligible = NOT eligible"
	} else {
		query += " ON CONFLICT (id) DO UPDATE SET eligible = excluded.eligible"
	}
	if _, err = tx.ExecContext(ctx, l.store.sql(query), args...); err != nil {
		return err
	}
	// A trigger or a rule can suppress rows without an error, and surplus assumes that no entrant differs.
	differing, err = l.differing(ctx, tx, part)
	if err == nil && len(differing) > 0 {
		err = fmt.Errorf("the table entrants does not store %q, and %d more entrants; look at its triggers and rules", differing[0].ID, len(differing)-1)
	}
	return err
}

// retire sets the entrants that are not in the list to not eligible.
func (l *loading) retire(ctx context.Context, tx *sql.Tx) error {
	seed := maphash.MakeSeed()
	listed := make([]uint64, 0, l.totals.Entrants)
	if err := l.list.Each(func(e entrants.Entrant) error {
		listed = append(listed, maphash.String(seed, e.ID))
		return nil
	}); err != nil {
		return err
	}
	slices.Sort(listed)
	return l.store.pages(ctx, tx, batch, func(ids []string) error {
		var gone []any
		for _, id := range ids {
			if _, found := slices.BinarySearch(listed, maphash.String(seed, id)); !found {
				gone = append(gone, id)
			}
		}
		if len(gone) == 0 {
			return nil
		}
		_, err := tx.ExecContext(ctx, l.store.sql("UPDATE entrants SET eligible = FALSE WHERE id IN "+values(1, len(gone))), gone...)
		return err
	})
}
