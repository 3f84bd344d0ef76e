package sqlonce_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	db := (&fake{}).db(t)
	for _, c := range []struct {
		dialect sqlonce.Dialect
		cfg     sqlonce.Config
		field   string // empty: accepted
	}{
		{sqlonce.SQLite, sqlonce.Config{}, ""},
		{sqlonce.MySQL, sqlonce.Config{TablePrefix: "a_9", IdleTimeout: time.Second}, ""},
		{sqlonce.MySQL, sqlonce.Config{IdleTimeout: 24 * time.Hour}, ""},
		{0, sqlonce.Config{}, "Dialect"},
		{4, sqlonce.Config{}, "Dialect"},
		{sqlonce.SQLite, sqlonce.Config{TablePrefix: "Noonlock"}, "Config.TablePrefix"},
		{sqlonce.SQLite, sqlonce.Config{TablePrefix: "9a"}, "Config.TablePrefix"},
		{sqlonce.SQLite, sqlonce.Config{TablePrefix: "a b"}, "Config.TablePrefix"},
		{sqlonce.SQLite, sqlonce.Config{TablePrefix: "a;drop"}, "Config.TablePrefix"},
		{sqlonce.SQLite, sqlonce.Config{TablePrefix: "a\n"}, "Config.TablePrefix"},
		{sqlonce.SQLite, sqlonce.Config{TablePrefix: strings.Repeat("a", 41)}, "Config.TablePrefix"},
		{sqlonce.SQLite, sqlonce.Config{IdleTimeout: -time.Second}, "Config.IdleTimeout"},
		{sqlonce.SQLite, sqlonce.Config{IdleTimeout: time.Millisecond}, "Config.IdleTimeout"},
		{sqlonce.SQLite, sqlonce.Config{IdleTimeout: 1500 * time.Millisecond}, "Config.IdleTimeout"},
		{sqlonce.SQLite, sqlonce.Config{IdleTimeout: 1<<63 - 1}, "Config.IdleTimeout"},
		{sqlonce.SQLite, sqlonce.Config{IdleTimeout: 24*time.Hour + time.Second}, "Config.IdleTimeout"},
	} {
		_, err := sqlonce.New(db, c.dialect, c.cfg)
		checkRefusal(t, err, c.field)
	}
	_, err := sqlonce.New(nil, sqlonce.SQLite, sqlonce.Config{})
	checkRefusal(t, err, "db")
}

func checkRefusal(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var refused *noonlock.ConfigError
	if !errors.Is(err, noonlock.ErrConfig) || !errors.As(err, &refused) || refused.Field != field {
		t.Errorf("error = %v, want a refusal of %s", err, field)
		return
	}
	if refused.Value == "" || refused.Rule == "" || len(err.Error()) > 300 {
		t.Errorf("error = %q, want a short sentence with value and rule", err)
	}
}

// FAULTS 46: nothing is sent for bad input.
func TestBadInput(t *testing.T) {
	t.Parallel()
	f := &fake{}
	once := newOnce(t, f, sqlonce.SQLite)
	with := func(change func(r *sqlonce.Marker)) sqlonce.Marker {
		r := run
		change(&r)
		return r
	}
	for _, c := range []struct {
		run   sqlonce.Marker
		field string
	}{
		{with(func(r *sqlonce.Marker) { r.Job = "" }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Job = strings.Repeat("j", 201) }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Job = strings.Repeat("j", 1<<20) }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Job = "a\x00b" }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Job = "a\nb" }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Job = "a " }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Job = "a\xff" }), "Marker.Job"},
		{with(func(r *sqlonce.Marker) { r.Tick = time.Time{} }), "Marker.Tick"},
		{with(func(r *sqlonce.Marker) { r.Tick = time.UnixMilli(0) }), "Marker.Tick"},
		{with(func(r *sqlonce.Marker) { r.Tick = r.Tick.Add(time.Microsecond) }), "Marker.Tick"},
		{with(func(r *sqlonce.Marker) { r.Tick = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }), "Marker.Tick"},
		{with(func(r *sqlonce.Marker) { r.Attempt = -1 }), "Marker.Attempt"},
		{with(func(r *sqlonce.Marker) { r.Attempt = 1 << 31 }), "Marker.Attempt"},
		{with(func(r *sqlonce.Marker) { r.Token = 0 }), "Marker.Token"},
		{with(func(r *sqlonce.Marker) { r.Token = 1 << 63 }), "Marker.Token"},
		{with(func(r *sqlonce.Marker) { r.Holder = strings.Repeat("h", 256) }), "Marker.Holder"},
		{with(func(r *sqlonce.Marker) { r.Holder = "a\tb" }), "Marker.Holder"},
	} {
		_, err := once.Do(t.Context(), c.run, nothing)
		checkRefusal(t, err, c.field)
	}
	tx, err := f.db(t).BeginTx(t.Context(), nil)
	testenv.Must(t, err)
	f.said()
	for _, c := range []struct {
		tx    *sql.Tx
		name  string
		token uint64
		field string
	}{
		{nil, "a", 1, "tx"},
		{tx, "", 1, "name"},
		{tx, "a ", 1, "name"},
		{tx, strings.Repeat("a", 201), 1, "name"},
		{tx, "a", 0, "token"},
		{tx, "a", 1 << 63, "token"},
	} {
		checkRefusal(t, once.Admit(t.Context(), c.tx, c.name, c.token), c.field)
	}
	_, err = once.Do(t.Context(), run, nil)
	checkRefusal(t, err, "fn")
	_, err = once.Prune(t.Context(), " x", run.Tick)
	checkRefusal(t, err, "job")
	_, err = once.Prune(t.Context(), "x", time.Time{})
	checkRefusal(t, err, "before")
	_, err = once.Prune(t.Context(), "x", time.Now().Add(time.Hour).Truncate(time.Second))
	checkRefusal(t, err, "before")
	if said := f.said(); said != "" {
		t.Errorf("sent: %s", said)
	}
}
