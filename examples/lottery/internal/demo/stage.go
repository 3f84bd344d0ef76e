package demo

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// stage prints the demo. One goroutine at a time calls its methods, so that related lines
// stay together.
type stage struct {
	out     io.Writer
	colours bool
}

const (
	indent  = "                " // below the text of a line
	columns = 5
)

func (s *stage) print(text string) {
	_, _ = io.WriteString(s.out, text) // the demo continues without output
}

func (s *stage) heading(text string) { s.print("\n" + s.strong(text) + "\n") }

// line prints an action of a replica with the current time.
func (s *stage) line(who string, what ...string) {
	s.print(fmt.Sprintf("%s %s  %s\n", time.Now().Format("15:04:05.000"), who, strings.Join(what, "\n"+indent)))
}

// table prints ids in columns.
func (s *stage) table(ids []string) {
	for len(ids) > 0 {
		n := min(columns, len(ids))
		s.print(indent + strings.Join(ids[:n], " ") + "\n")
		ids = ids[n:]
	}
}

func (s *stage) verdict(held bool, text string) {
	mark := s.paint("32", "ok    ")
	if !held {
		mark = s.alarm("FAILED")
	}
	s.print("  " + mark + "  " + text + "\n")
}

func (s *stage) strong(text string) string { return s.paint("1", text) }
func (s *stage) alarm(text string) string  { return s.paint("1;31", text) }

func (s *stage) paint(code, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// brief returns a short text of an error.
func brief(err error) string {
	if stale := (*sqlonce.StaleTokenError)(nil); errors.As(err, &stale) {
		return fmt.Sprintf("it has seen token %d", stale.Seen)
	}
	return err.Error()
}
