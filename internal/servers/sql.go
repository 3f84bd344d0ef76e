package servers

import (
	"crypto/rand"
	"strings"
	"testing"
)

// SQL says how to reach one fresh database as a user who may do everything in
// it and nothing outside. The password holds only letters and digits, so a DSN
// can be put together without quoting.
type SQL struct {
	Host     string
	Port     int
	User     string
	Password string
	Database string
	// Reader is a user with the same password who may do nothing yet: tests grant it
	// what they want to try.
	Reader string
}

// SQLServer is a database server that belongs to one test, for tests that kill,
// pause or restart it. Its methods are safe for use by several goroutines.
type SQLServer struct {
	*process
	password string // of the administrator, named admin
	create   func(name, password string) error
}

// admin is the account behind a server's own commands.
const admin = "noonlock_admin"

// Database makes a fresh database and a user for it. Both last as long as the
// server.
func (s *SQLServer) Database(tb testing.TB) SQL {
	tb.Helper()
	name, password := "n_"+strings.ToLower(rand.Text()), rand.Text()
	if err := s.create(name, password); err != nil {
		tb.Fatalf("%s: creating a database: %v", s.name, err)
	}
	return SQL{Host: "127.0.0.1", Port: s.port, User: name, Password: password, Database: name, Reader: name + "_r"}
}
