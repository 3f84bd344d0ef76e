package store

import (
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Entrants are the ids of a list. The value says whether an entrant is eligible.
type Entrants map[string]bool

// Eligible returns the ids of the eligible entrants.
func (e Entrants) Eligible() (ids []string) {
	for id, eligible := range e {
		if eligible {
			ids = append(ids, id)
		}
	}
	return ids
}

// ReadEntrants reads a CSV file with the header id,eligible. An error names the line and the rule.
func ReadEntrants(file io.Reader) (Entrants, error) {
	r := csv.NewReader(file)
	r.FieldsPerRecord = -1
	all := Entrants{}
	for first := true; ; first = false {
		record, err := r.Read()
		line := 0
		if err == nil {
			line, _ = r.FieldPos(0)
		}
		switch {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the list has no entrants; it must have the header id,eligible and a line for each entrant")
		case err != nil:
			return nil, err // names the line and the rule
		case first && strings.TrimPrefix(strings.Join(record, ","), "\ufeff") != "id,eligible": // spreadsheets write this mark
			return nil, fmt.Errorf("line 1: the header is %.60q; it must be id,eligible", strings.Join(record, ","))
		case first:
			continue
		case len(record) != 2:
			return nil, fmt.Errorf("line %d: the number of fields is %d; it must be 2, id and eligible", line, len(record))
		}
		id, eligible := record[0], record[1]
		_, twice := all[id]
		switch {
		case id == "" || len(id) > 200 || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) || strings.TrimSpace(id) != id:
			return nil, fmt.Errorf("line %d: the id is %.60q; it must be 1 to 200 bytes of UTF-8 without control characters, and without space at either end", line, id)
		case twice:
			return nil, fmt.Errorf("line %d: the id is %q, as in an earlier line; it must be unique", line, id)
		case eligible != "true" && eligible != "false":
			return nil, fmt.Errorf("line %d: eligible is %.60q; it must be true or false", line, eligible)
		}
		all[id] = eligible == "true"
	}
}

// load makes the table equal to the list. If it is, nothing is written.
func (s *Store) load(ctx context.Context, tx *sql.Tx, list Entrants) error {
	if stored, err := s.Entrants(ctx, tx); err != nil || maps.Equal(stored, list) {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM entrants"); err != nil {
		return err
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(list)), 500) {
		var args []any
		for _, id := range ids {
			args = append(args, id, list[id])
		}
		if _, err := tx.ExecContext(ctx, s.sql("INSERT INTO entrants (id, eligible) VALUES "+values(len(ids), 2)), args...); err != nil {
			return err
		}
	}
	return nil
}

// Entrants returns the entrants in the table.
func (s *Store) Entrants(ctx context.Context, tx *sql.Tx) (Entrants, error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, eligible FROM entrants")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := Entrants{}
	for rows.Next() {
		var id string
		var eligible bool
		if err := rows.Scan(&id, &eligible); err != nil {
			return nil, err
		}
		all[id] = eligible
	}
	return all, rows.Err()
}
