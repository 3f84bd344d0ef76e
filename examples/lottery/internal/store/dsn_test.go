package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

func TestParseDSN(t *testing.T) {
	t.Parallel()
	for dsn, shown := range map[string]string{
		"sqlite:lottery.db":                            "sqlite:lottery.db",
		"sqlite:/var/lib/a b?#%.db":                    "sqlite:/var/lib/a b?#%.db",
		"mysql://u:s3cret@db:3307/lottery":             "mysql://u@db:3307/lottery",
		"mysql://u:s3cret@db/lottery?tls=skip-verify":  "mysql://u@db/lottery",
		"mysql://u@[::1]/lottery":                      "mysql://u@[::1]/lottery",
		"mysql://u:p%40s%2F%3As3cret@db/lottery":       "mysql://u@db/lottery",
		"postgres://u:s3cret@db/lottery":               "postgres://u@db/lottery",
		"postgresql://u:s3cret@db:1/l?sslmode=disable": "postgres://u@db:1/l",
		"postgres://u@db/l?password=s3cret":            "postgres://u@db/l",
	} {
		d, err := store.ParseDSN(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		text, err := d.MarshalText()
		if d.String() != shown || string(text) != shown || err != nil {
			t.Errorf("%s is shown as %s, %s, %v", dsn, d, text, err)
		}
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if s := fmt.Sprintf(format, d); strings.Contains(s, "s3cret") {
				t.Errorf("%s shows the password: %s", format, s)
			}
		}
	}
}

// FAULTS 62: an error contains no part of the DSN, since each part may be part of the password.
func TestBadDSN(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"", "lottery.db", "s3cret", "oracle://u:s3cret@db/lottery", "mysql:u:s3cret@tcp(db)/lottery",
		"sqlite:", "sqlite::memory:", "sqlite://s3cret.db", "sqlite:s3cret\x00",
		"mysql://", "mysql://u:s3cret@/lottery", "mysql://u:s3cret@db", "mysql://u:s3cret@db/", "mysql://db/s3cret",
		"mysql://:s3cret@db/lottery", "mysql://u:s3cret@db:port/lottery", "mysql://u:s3cret@db/lottery/more",
		"mysql://u:s3cret@db/lottery?charset=s3cret", "mysql://u:s3cret@db/lottery?tls=s3cret", "mysql://u:s3cret@db/lottery?a;b",
		"mysql://u:s3cret@db/lottery#s3cret", "mysql://u:%zzs3cret@db/lottery",
		// The password is a/s3cret, 12/s3cret, a?s3cret, a#s3cret, a@s3cret.
		"mysql://u:a/s3cret@db/lottery", "mysql://u:12/s3cret@db/lottery", "mysql://u:a?s3cret@db/lottery",
		"mysql://u:12?s3cret@db/lottery", "mysql://u:a#s3cret@db/lottery", "mysql://u:a s3cret@db/lottery",
		"mysql://a@b:12/s3cret@db/lottery", "postgres://u:a/s3cret@db/lottery", "postgres://u:a s3cret@db/lottery",
		"postgres://u:s3cret@db:99999/lottery", "postgres://u:s3cret@db/lottery?sslmode=s3cret",
		"postgres://u:s3cret@db/lottery?sslrootcert=s3cret", "postgres://u:s3cret@db/lottery?connect_timeout=s3cret",
	} {
		d, err := store.ParseDSN(dsn)
		if !errors.Is(err, store.ErrDSN) {
			t.Errorf("%q is accepted as %v, %v", dsn, d, err)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), "s3cret") || strings.Contains(fmt.Sprintf("%#v", e), "s3cret") {
				t.Errorf("%q: the error tells too much: %v", dsn, e)
			}
		}
		if len(err.Error()) < len(store.ErrDSN.Error())+20 {
			t.Errorf("%q: %v is no sentence", dsn, err)
		}
	}
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"sqlite:" + filepath.Join(t.TempDir(), "missing", "lottery.db"),
		"sqlite:" + t.TempDir(),
		"mysql://u:s3cret@127.0.0.1:1/lottery",
		"postgres://u:s3cret@127.0.0.1:1/lottery",
	} {
		d, err := store.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), d, sqlonce.Config{})
		if err == nil {
			s.Close()
			t.Errorf("%s was opened", dsn)
			continue
		}
		if strings.Contains(fmt.Sprintf("%v %#v", err, err), "s3cret") {
			t.Errorf("%s: the error tells the password: %v", dsn, err)
		}
	}
	if _, err := store.Open(t.Context(), store.DSN{}, sqlonce.Config{}); !errors.Is(err, store.ErrDSN) {
		t.Errorf("no DSN: %v", err)
	}
}
