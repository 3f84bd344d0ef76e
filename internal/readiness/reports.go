package readiness

import (
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-logr/logr"
)

// Reports logs failures that many workers notice at about the same time, such as an outage of the server: each kind
// once, with the number of workers, and once more when the last of them has recovered.
type Reports struct {
	Log     logr.Logger
	Workers string // what they are, the key of their number
	Message string // what is logged with a failure
	Again   string // and after it

	mu      sync.Mutex
	failing map[string]*report // by kind
}

// A report is of one kind of failure, from the first worker that has it to the last one.
type report struct {
	log             logr.Logger // of the only worker, or of all
	err             error       // the first one
	temporary       bool
	since           time.Time
	timer           *time.Timer
	now, most       int // workers that fail, and the most at a time
	said, recovered bool
}

// reportAfter is how long a report waits for more workers.
const reportAfter = time.Second

// fails records a failure of a worker whose failure before it was of the kind was, and returns its kind. Of several
// failures of a kind in a row, the first one counts.
func (of *Reports) fails(was string, log logr.Logger, err error, temporary bool) (kind string) {
	kind = "temporary"
	if !temporary {
		kind = kindOf(err)
	}
	if kind == was {
		return kind
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if r := of.failing[was]; r != nil {
		of.say(r) // also if it was short: two kinds may alternate
		of.leave(was, false)
	}
	r := of.failing[kind]
	if r == nil {
		r = &report{log: log, err: err, temporary: temporary, since: time.Now()}
		r.timer = time.AfterFunc(reportAfter, func() {
			of.mu.Lock()
			defer of.mu.Unlock()
			if r.now > 0 {
				of.say(r)
			}
		})
		if of.failing == nil {
			of.failing = map[string]*report{}
		}
		of.failing[kind] = r
	}
	if r.now++; r.now > 1 {
		r.log = of.Log
	}
	r.most = max(r.most, r.now)
	return kind
}

// leave records that a worker has a kind of failure no longer.
func (of *Reports) leave(kind string, recovered bool) {
	r := of.failing[kind]
	r.recovered = r.recovered || recovered
	if r.now--; r.now > 0 {
		return
	}
	delete(of.failing, kind)
	r.timer.Stop()
	if r.recovered {
		of.say(r)
		r.log.Info(of.Again, of.Workers, r.most, "after", time.Since(r.since).Round(time.Millisecond))
	}
}

// say logs a failure once.
func (of *Reports) say(r *report) {
	switch {
	case r.said:
	case r.temporary:
		r.log.Info(of.Message, of.Workers, r.most, "err", r.err)
	default:
		r.log.Error(r.err, of.Message, of.Workers, r.most)
	}
	r.said = true
}

// kindOf returns the kind of a lasting failure. Several calls return the same error, and addresses differ between
// tries. So it contains neither the name of the call nor digits.
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
