package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/console/login"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// An invalid address is refused with a rule. No error contains a part of it: each may be part of a password.
func TestInvalidAddresses(t *testing.T) {
	t.Parallel()
	with := login.Files{CA: servers.SelfSigned(t).Cert}
	none := login.Files{}
	for _, c := range []struct {
		address, password string
		with              login.Files
		want              string
	}{
		{"", "", none, "it must be sqlite:PATH, or a URL"},
		{"oracle://u:s3cret@db/lottery", "", none, "it must be sqlite:PATH, or a URL"},
		{"mysql://u:a%s3cret@db/lottery", "", none, "percent-encoded"},
		{"mysql://u:12/s3cret@db/lottery", "", none, "it must name a user"},
		{"postgres://u:s3cret@db/lottery", "", none, "it must be sqlite:PATH, or a URL"},
		{"mysql://u:s3cret@/lottery", "", none, "it must name a user, a host and a database"},
		{"mysql://u:s3cret@db/lottery", "s3cret2", none, "one of them must be left out"},
		{"mysql://u:s3cret@db/lottery?tls=s3cret", "", none, "MySQL's driver does not accept"},
		{"mysql://u:s3cret@db/lottery?tls=false", "", with, "tls must be true or absent if certificates are set"},
		{"sqlite:", "", none, "it must name a file"},
		{"sqlite::memory:", "", none, "it must name a file"},
		{"sqlite:lottery.db", "s3cret", none, "a password and certificates must not be set"},
		{"sqlite:lottery.db", "", with, "a password and certificates must not be set"},
		{"sqlite:/nowhere/lottery.db", "", none, `"/nowhere", does not exist`},
	} {
		_, err := store.Parse(c.address, c.password, c.with)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v; want %q", c.address, err, c.want)
		}
	}
}

// The text of an address, and an error of its server, have no password.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"mysql://u:s3cret@127.0.0.1:1/lottery?timeout=3s", "mysql://u@127.0.0.1:1/lottery"} {
		password := ""
		if !strings.Contains(address, "s3cret") {
			password = "s3cret/@?#%" // by value it needs no encoding
		}
		at, err := store.Parse(address, password, login.Files{})
		testenv.Must(t, err)
		_, err = store.Open(t.Context(), at, time.Second)
		if text := at.String(); err == nil || !strings.HasSuffix(text, "://u@127.0.0.1:1/lottery") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// With certificates, a server with a private authority is reached, and one that it has not signed is not.
func TestCertificates(t *testing.T) {
	t.Parallel()
	own := servers.SelfSigned(t)
	mariaDB := servers.MariaDBServer(t, "--ssl-ca="+own.Cert, "--ssl-cert="+own.Cert, "--ssl-key="+own.Key)
	m := mariaDB.Database(t)
	mariaDB.Administer(t, "ALTER USER "+m.User+"@'%' REQUIRE X509")
	for _, ours := range []bool{true, false} {
		files := login.Files{CA: own.Cert, Cert: own.Cert, Key: own.Key}
		if !ours {
			files.CA = servers.SelfSigned(t).Cert
		}
		at, err := store.Parse(urlOf(m), "", files)
		testenv.Must(t, err)
		s, err := store.Open(t.Context(), at, time.Second)
		if err == nil {
			s.Close()
		}
		if (err == nil) != ours {
			t.Errorf("signed by an authority that we trust %t: %v", ours, err)
		}
	}
}
