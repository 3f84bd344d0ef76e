package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each calls scan for each row of a query.
func (s *Store) each(ctx context.Context, in querier, scan func(rows *sql.Rows) error, query string, args ...any) error {
	rows, err := in.QueryContext(ctx, s.sql(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// eachID calls fn for each id that a query selects.
func (s *Store) eachID(ctx context.Context, tx *sql.Tx, fn func(id string), query string, args ...any) error {
	return s.each(ctx, tx, func(rows *sql.Rows) error {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		fn(id)
		return nil
	}, query, args...)
}

// ids returns the ids that a query selects.
func (s *Store) ids(ctx context.Context, tx *sql.Tx, query string, args ...any) (ids []string, err error) {
	err = s.eachID(ctx, tx, func(id string) { ids = append(ids, id) }, query, args...)
	return ids, err
}

// pages calls fn with all eligible entrants in the order of their ids, up to size at a time.
func (s *Store) pages(ctx context.Context, tx *sql.Tx, size int, fn func(ids []string) error) error {
	for last := ""; ; {
		ids, err := s.ids(ctx, tx, "SELECT id FROM entrants WHERE eligible AND id > ? ORDER BY id LIMIT ?", last, size)
		if err != nil {
			return err
		}
		if err := fn(ids); err != nil {
			return err
		}
		if len(ids) < size {
			return nil
		}
		last = ids[len(ids)-1]
	}
}

// sql replaces each ? by the dialect's placeholder. No statement of this package has a ? in a literal.
func (s *Store) sql(query string) string {
	if s.dialect != sqlonce.PostgreSQL {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// values returns n rows of placeholders.
func values(n, columns int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", columns), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(row+", ", n), ", ")
}
