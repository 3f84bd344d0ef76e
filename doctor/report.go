package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A Verdict is the result of a check.
type Verdict string

// The verdicts, from the best to the worst.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // a guarantee is weaker, or the question was refused
	Fail Verdict = "fail" // locks, elections or jobs do not work, or lose their guarantees
)

func (v Verdict) rank() int { return slices.Index([]Verdict{OK, Warn, Fail}, v) }

// A Check is one question and its answer.
type Check struct {
	Name    string  `json:"check"`
	Server  string  `json:"server,omitempty"` // empty for all servers together
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Rule    string  `json:"rule"` // the rule in docs/OPERATIONS.md

	// Unanswered is true if the check failed because a server did not answer. Then the settings
	// and the state of the server are unknown.
	Unanswered bool `json:"unanswered,omitempty"`
}

// A Report has the answers of all servers.
type Report struct {
	Verdict  Verdict `json:"verdict"` // worst verdict of the checks
	Topology string  `json:"topology"`
	Checks   []Check `json:"checks"`
}

func checkOf(server, check string, verdict Verdict, format string, args ...any) Check {
	return Check{Name: check, Server: server, Verdict: verdict, Found: fmt.Sprintf(format, args...)}
}

// unconnected returns the check of a server that did not answer, or refused the user.
func unconnected(server string, err error) Check {
	return Check{Name: "connection", Server: server, Verdict: Fail, Found: oneLine(err), Unanswered: !wire.IsRefused(err)}
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// short returns a duration that is rounded to hundredths of its unit.
func short(d time.Duration) string {
	for unit := time.Second; unit >= time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
