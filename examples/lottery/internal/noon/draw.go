package noon

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	r.FieldsPerRecord = 2
	all := Entrants{}
	for first := true; ; first = false {
		record, err := r.Read()
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
		}
		id, eligible := record[0], record[1]
		_, twice := all[id]
		line, _ := r.FieldPos(0)
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

// MaxWinners is the greatest number of winners of one draw.
const MaxWinners = 1000

// Winners returns k of the ids in random order. Every set of k is equally likely, and so is every
// order of it. It changes the order of ids.
func Winners(ids []string, k int) ([]string, error) {
	if len(ids) < k {
		return nil, fmt.Errorf("the number of eligible entrants is %d; it must be at least %d, the number of winners", len(ids), k)
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) // its seed is from the system
	return ids[:k], nil
}
