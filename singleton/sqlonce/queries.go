package sqlonce

import (
	"strconv"
	"strings"
)

// queries are the statements of a dialect, for the methods of Once. No other file contains names of tables.
type queries struct {
	schema []string // creates the tables

	fencesTable, markersTable string

	// raiseFence takes (job, tick, token, kept_from), raises token and kept_from, and locks the row. It returns both.
	// On MySQL, it takes both twice and returns nothing, and readFence reads them.
	raiseFence, readFence string
	// insertMarker takes (job, tick, attempt, token, holder, applied_at). If the tick has a marker, it inserts no row,
	// or fails on MySQL.
	insertMarker string
	readMarker   string // reads attempt and token of (job, tick)
	readFloor    string // reads kept_from of a job
	// pruneMarkers and pruneFences take (job, floor, -floor). They delete rows of ticks and of triggered runs before
	// floor.
	pruneMarkers, pruneFences string
}

func newQueries(d Dialect, prefix string) queries {
	q := queries{
		fencesTable: prefix + "_fences", markersTable: prefix + "_markers",
		raiseFence: "INSERT INTO {fences} (job, tick, token, kept_from) VALUES (?, ?, ?, ?) " +
			"ON CONFLICT (job, tick) DO UPDATE SET token = {greatest}({fences}.token, excluded.token), " +
			"kept_from = {greatest}({fences}.kept_from, excluded.kept_from) RETURNING token, kept_from",
		insertMarker: "INSERT INTO {markers} (job, tick, attempt, token, holder, applied_at) VALUES (?, ?, ?, ?, ?, ?) " +
			"ON CONFLICT (job, tick) DO NOTHING",
		readMarker:   "SELECT attempt, token FROM {markers} WHERE job = ? AND tick = ?",
		readFloor:    "SELECT kept_from FROM {fences} WHERE job = ? AND tick = 0",
		pruneMarkers: "DELETE FROM {markers} WHERE job = ? AND tick < ? AND tick > ?",
		pruneFences:  "DELETE FROM {fences} WHERE job = ? AND tick < ? AND tick > ? AND tick <> 0",
	}
	text, greatest, end := "TEXT", "GREATEST", ""
	switch d {
	case SQLite:
		greatest = "MAX"
	case PostgreSQL:
		// Comparing bytes is faster, and gives the same order with each collation of the database.
		text = `TEXT COLLATE "C"`
	case MySQL:
		// Case and accents matter. Spaces at the end do not, so validateJob refuses them.
		text, end = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", " ENGINE=InnoDB"
		// VALUES(token) would avoid the second parameters. It is deprecated on MySQL, and MariaDB does not support its
		// replacement.
		q.raiseFence = "INSERT INTO {fences} (job, tick, token, kept_from) VALUES (?, ?, ?, ?) " +
			"ON DUPLICATE KEY UPDATE token = GREATEST(token, ?), kept_from = GREATEST(kept_from, ?)"
		// A plain SELECT, without FOR UPDATE, would create the snapshot that fn reads.
		q.readFence = "SELECT token, kept_from FROM {fences} WHERE job = ? AND tick = ? FOR UPDATE"
		// ON DUPLICATE KEY UPDATE would count an existing row with the driver's option clientFoundRows. INSERT IGNORE would
		// also ignore that no partition takes the row, that a constraint refuses it, or that a value is cut.
		q.insertMarker = "INSERT INTO {markers} (job, tick, attempt, token, holder, applied_at) VALUES (?, ?, ?, ?, ?, ?)"
		// The lock finds a row that was committed after the snapshot of the transaction, and creates no snapshot.
		q.readMarker += " LOCK IN SHARE MODE"
	}
	q.schema = []string{
		"CREATE TABLE IF NOT EXISTS {fences} (job {text} NOT NULL, tick BIGINT NOT NULL, token BIGINT NOT NULL, " +
			"kept_from BIGINT NOT NULL, PRIMARY KEY (job, tick))" + end,
		"CREATE TABLE IF NOT EXISTS {markers} (job {text} NOT NULL, tick BIGINT NOT NULL, attempt INT NOT NULL, " +
			"token BIGINT NOT NULL, holder {text} NOT NULL, applied_at BIGINT NOT NULL, PRIMARY KEY (job, tick))" + end,
	}
	names := strings.NewReplacer("{fences}", q.fencesTable, "{markers}", q.markersTable, "{text}", text, "{greatest}", greatest)
	for _, s := range []*string{
		&q.schema[0], &q.schema[1], &q.raiseFence, &q.readFence, &q.insertMarker, &q.readMarker, &q.readFloor,
		&q.pruneMarkers, &q.pruneFences,
	} {
		*s = names.Replace(*s)
		if d == PostgreSQL {
			*s = numbered(*s)
		}
	}
	return q
}

// numbered replaces each ? by $1, $2, …. No statement here has a ? in a literal.
func numbered(query string) string {
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
