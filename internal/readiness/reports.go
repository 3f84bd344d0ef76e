package readiness

import (
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-logr/logr"
)

// Reports logs failures that many workers notice at about the same time, for example an outage of the server. It logs
// each kind of failure once, with the number of workers, and once more when the last of these workers has recovered.
type Reports struct {
	Log     logr.Logger
	Workers string // plural noun, the log key of their number
	Message string // log message of a failure
	Again   string // log message of the recovery

	mu      sync.Mutex
	reports map[string]*report // by kind
}

// A report describes one kind of failure, until no worker has it.
type report struct {
	log               logr.Logger // logger of the worker, or Reports.Log for several workers
	err               error       // first error of this kind
	temporary         bool
	since             time.Time
	timer             *time.Timer // logs the failure after reportAfter
	failing, most     int         // number of failing workers, and its maximum
	logged, recovered bool        // whether the failure was logged, and whether a worker recovered
}

// reportAfter is the time after which a failure is logged: in it, other workers may notice the same.
const reportAfter = time.Second

// add records a failure of a worker, and returns its kind. before is the kind of the worker's previous failure, or
// empty: a failure of the same kind is not counted again.
func (rs *Reports) add(before string, log logr.Logger, err error, temporary bool) (kind string) {
	kind = "temporary"
	if !temporary {
		kind = kindOf(err)
	}
	if kind == before {
		return kind
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.reports[before]; r != nil {
		rs.write(r) // even before reportAfter: if two kinds alternate, none lasts that long
		rs.remove(before, false)
	}
	r := rs.reports[kind]
	if r == nil {
		r = &report{log: log, err: err, temporary: temporary, since: time.Now()}
		r.timer = time.AfterFunc(reportAfter, func() {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			if r.failing > 0 {
				rs.write(r)
			}
		})
		if rs.reports == nil {
			rs.reports = map[string]*report{}
		}
		rs.reports[kind] = r
	}
	if r.failing++; r.failing > 1 {
		r.log = rs.Log
	}
	r.most = max(r.most, r.failing)
	return kind
}

// remove records that a worker no longer has a kind of failure. recovered means that the worker works again.
func (rs *Reports) remove(kind string, recovered bool) {
	r := rs.reports[kind]
	r.recovered = r.recovered || recovered
	if r.failing--; r.failing > 0 {
		return
	}
	delete(rs.reports, kind)
	r.timer.Stop()
	if r.recovered {
		rs.write(r)
		r.log.Info(rs.Again, rs.Workers, r.most, "after", time.Since(r.since).Round(time.Millisecond))
	}
}

func (rs *Reports) write(r *report) {
	switch {
	case r.logged:
	case r.temporary:
		r.log.Info(rs.Message, rs.Workers, r.most, "err", r.err)
	default:
		r.log.Error(r.err, rs.Message, rs.Workers, r.most)
	}
	r.logged = true
}

// kindOf returns the kind of a lasting failure: its text without the name of the lock, which differs between workers,
// and without digits, which differ between tries, as in addresses.
func kindOf(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, `": `); at >= 0 {
		text = text[at:]
	}
	return "lasting " + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || strings.ContainsRune(`": `, r) {
			return -1
		}
		return r
	}, text)
}
