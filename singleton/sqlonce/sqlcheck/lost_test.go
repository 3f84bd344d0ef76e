package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// A loss is a way in which a database does not store a row, or stores another one, without an
// error of the INSERT that sqlonce sent at first.
type loss struct {
	name        string
	begin, mend []string
	// again means that a tick of before is still recognized as applied. Otherwise, it is an error.
	again bool
	// works means that a new tick takes effect once. Only Check reports the loss.
	works bool
}

// losses returns the losses of a dialect.
func losses(d sqlonce.Dialect) []loss {
	trigger := func(name, event, table, body string, again bool) loss {
		begin := []string{fmt.Sprintf("CREATE TRIGGER lose %s ON %s FOR EACH ROW %s", event, table, body)}
		drop := "DROP TRIGGER lose"
		switch d {
		case sqlonce.SQLite:
			begin[0] = fmt.Sprintf("CREATE TRIGGER lose %s ON %s BEGIN %s; END", event, table, body)
		case sqlonce.PostgreSQL:
			begin = []string{
				"CREATE OR REPLACE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN " + body + "; END'",
				fmt.Sprintf("CREATE TRIGGER lose %s ON %s FOR EACH ROW EXECUTE FUNCTION lose()", event, table),
			}
			drop += " ON " + table
		case sqlonce.MySQL:
		}
		return loss{name: name, begin: begin, mend: []string{drop}, again: again}
	}
	const markers, fences = "noonlock_markers", "noonlock_fences"
	switch d {
	case sqlonce.SQLite:
		return []loss{
			trigger("no marker", "BEFORE INSERT", markers, "SELECT RAISE(IGNORE)", true),
			trigger("the trigger inserts the marker", "BEFORE INSERT", markers,
				"INSERT INTO noonlock_markers VALUES (NEW.job, NEW.tick, NEW.attempt, NEW.token, NEW.holder, NEW.applied_at)", false),
			trigger("the marker is deleted", "AFTER INSERT", markers, "DELETE FROM noonlock_markers WHERE rowid = NEW.rowid", true),
			trigger("no fence", "BEFORE UPDATE", fences, "SELECT RAISE(IGNORE)", false),
		}
	case sqlonce.PostgreSQL:
		return []loss{
			trigger("no marker", "BEFORE INSERT", markers, "RETURN NULL", true),
			trigger("the marker is moved", "BEFORE INSERT", markers, "NEW.tick := NEW.tick + 1; RETURN NEW", false),
			trigger("the marker is deleted", "AFTER INSERT", markers,
				"DELETE FROM noonlock_markers WHERE job = NEW.job AND tick = NEW.tick; RETURN NULL", true),
			{
				"rule",
				[]string{"CREATE RULE lose AS ON INSERT TO noonlock_markers DO INSTEAD NOTHING"},
				[]string{"DROP RULE lose ON noonlock_markers"},
				true, false,
			},
			trigger("no fence", "BEFORE INSERT OR UPDATE", fences, "RETURN NULL", false),
			trigger("an old fence", "BEFORE UPDATE", fences, "RETURN OLD", true),
		}
	default:
		return []loss{
			{
				"the last partition has ended",
				[]string{fmt.Sprintf("ALTER TABLE noonlock_markers PARTITION BY RANGE (tick) "+
					"(PARTITION p0 VALUES LESS THAN (%d))", noon(1, 0).Tick.UnixMilli())},
				[]string{"ALTER TABLE noonlock_markers REMOVE PARTITIONING"},
				true, false,
			},
			{
				"constraint",
				[]string{fmt.Sprintf("ALTER TABLE noonlock_markers ADD CONSTRAINT lose CHECK (tick < %d)", noon(2, 0).Tick.UnixMilli())},
				[]string{"ALTER TABLE noonlock_markers DROP CONSTRAINT lose"},
				true, false,
			},
			trigger("the marker is moved", "BEFORE INSERT", markers, "SET NEW.tick = NEW.tick + 1", false),
			trigger("an old fence", "BEFORE UPDATE", fences, "SET NEW.token = OLD.token, NEW.kept_from = OLD.kept_from", true),
			{
				"no key",
				[]string{"ALTER TABLE noonlock_markers DROP PRIMARY KEY"},
				[]string{"ALTER TABLE noonlock_markers ADD PRIMARY KEY (job, tick)"},
				false, true,
			},
		}
	}
}

// The database does not store the marker or the fence, and returns no error. Nothing is
// committed then, and Do returns an error: that no row was inserted does not prove that the
// tick was applied before. Check finds each loss.
func TestFault91_TheMarkerIsNotStored(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		n.apply(t, noon(0, 1), true)
		if d.dialect == sqlonce.PostgreSQL {
			// Partitions as they were made before PostgreSQL 10: the trigger inserts into a child.
			n.exec(t, "CREATE TABLE child () INHERITS (noonlock_markers)")
		}
		all := losses(d.dialect)
		if d.dialect == sqlonce.PostgreSQL {
			child := all[0]
			child.name, child.begin = "the trigger inserts into a child", append([]string{strings.Replace(child.begin[0],
				"RETURN NULL", "INSERT INTO child SELECT NEW.*; RETURN NULL", 1)}, child.begin[1:]...)
			all = append(all, child)
		}
		for i, l := range all {
			for _, statement := range l.begin {
				n.exec(t, statement)
			}
			run := noon(1+i, uint64(10+i))
			seen := n.number(t, "SELECT MAX(token) FROM noonlock_fences WHERE job = 'lottery'")
			calls := 0
			do := func(run sqlonce.Marker) (bool, error) {
				return n.once.Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
					calls++
					return n.write(ctx, tx, run)
				})
			}
			if err := n.once.Check(t.Context(), nil); err == nil {
				t.Errorf("%s: Check = nil", l.name)
			}
			if applied, err := do(noon(0, uint64(seen))); applied || (err == nil) != l.again || calls != 0 {
				t.Errorf("%s: Do of an earlier tick = %v, %v after %d calls", l.name, applied, err, calls)
			}
			if !l.works {
				applied, err := do(run)
				if applied || err == nil || errors.Is(err, sqlonce.ErrUnknownOutcome) || calls != 0 ||
					d.dialect != sqlonce.MySQL && !errors.Is(err, sqlonce.ErrNotStored) { // MariaDB refuses some itself
					t.Errorf("%s: Do = %v, %v after %d calls; want a definite error and no call", l.name, applied, err, calls)
				}
				n.expect(t, run, 0, 0)
				testenv.Equal(t, l.name+": the fence", n.number(t, "SELECT MAX(token) FROM noonlock_fences WHERE job = 'lottery'"), seen)
			}
			if strings.Contains(l.name, "fence") {
				// Without a floor, a deleted marker would be taken for one that never was.
				testenv.Call(n.once.Prune(t.Context(), "lottery", noon(1, 0).Tick)).MustFail(t)
			}
			for _, statement := range l.mend {
				n.exec(t, statement)
			}
			testenv.Equal(t, l.name+": markers in all", n.number(t, "SELECT COUNT(*) FROM noonlock_markers"), int64(1+i))
			testenv.Must(t, n.once.Check(t.Context(), nil))
			n.exec(t, "DELETE FROM noonlock_fences")
			n.apply(t, run, true)
			n.apply(t, run, false)
			n.expect(t, run, 1, 1)
		}
	})
}
