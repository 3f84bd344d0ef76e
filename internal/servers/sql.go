package servers

import (
	"crypto/rand"
	"strings"
	"testing"
)

// SQL is the address of a new database and the account of its owner, who has all rights in
// it and none outside it. The password consists of letters and digits, so a DSN needs no
// quoting.
type SQL struct {
	Host     string
	Port     int
	User     string
	Password string
	Database string
	// Reader is a user with the same password and without rights. Tests grant it the
	// rights that they need.
	Reader string
}

// SQLServer is a database server that belongs to one test, which can kill, pause or
// restart it. Its methods are safe for concurrent use.
type SQLServer struct {
	*process
	password string // of the administrator, named admin
	create   func(name, password string) error
	order    func(statement string) error
}

// admin is the account that creates databases and users.
const admin = "noonlock_admin"

// Administer executes a statement as the administrator.
func (s *SQLServer) Administer(tb testing.TB, statement string) {
	tb.Helper()
	if err := s.order(statement); err != nil {
		tb.Fatalf("%s: %s: %v", s.name, statement, err)
	}
}

// Database creates a database and a user for it. Both exist as long as the server.
func (s *SQLServer) Database(tb testing.TB) SQL {
	tb.Helper()
	name, password := "n_"+strings.ToLower(rand.Text()), rand.Text()
	if err := s.create(name, password); err != nil {
		tb.Fatalf("%s: creating a database: %v", s.name, err)
	}
	return SQL{Host: "127.0.0.1", Port: s.port, User: name, Password: password, Database: name, Reader: name + "_r"}
}
