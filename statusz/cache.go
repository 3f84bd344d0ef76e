package statusz

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
)

var errUnread = errors.New("statusz: the states of the jobs are not known yet")

const (
	staleAfter = 3 * time.Second // time without an answer
	maxNamed   = 3               // unread things in a text
)

// A key names a thing, or without a name the list of a kind.
type key struct {
	kind overview.Kind
	name string
}

var marksKey = key{kind: overview.Kinds} // the marks of all jobs

// A failure is the error of the last read, and the start of the first read that failed.
type failure struct {
	err   error
	since time.Time
}

// An item is a row as JSON. It does not change.
type item struct{ json []byte }

// A cache is what was read for the views.
type cache struct {
	client *lockcore.Client

	mu         sync.Mutex
	views      map[*view]struct{}
	lists      [overview.Kinds]*list // nil until the first search
	items      map[key]*item
	failed     map[key]failure
	ahead      time.Duration // server's clock minus ours
	touched    map[key]bool  // things to read at once
	polled     time.Time     // start of the poll in progress; zero without a poll
	searched   time.Time     // last answer to the search in progress; zero without a search
	retry      bool          // the next poll reads all failed things
	generation int           // counts runs: a run of an older generation changes nothing
}

// clear forgets what earlier runs have read. The caller has locked c.mu.
func (c *cache) clear() {
	c.generation++
	c.items, c.failed, c.polled, c.searched = map[key]*item{}, map[key]failure{}, time.Time{}, time.Time{}
}

// A state says whether a view is up to date. At first, it may be neither live nor stale.
type state struct {
	live  bool      // the last read of each thing succeeded
	stale string    // why the view is out of date, or ""
	since time.Time // when it became stale
}

// state returns the state of a view. The caller has locked c.mu.
func (c *cache) state(v *view) state {
	var failed []string
	var earliest failure
	complete := true // each thing was read, or its read failed
	check := func(k key, description string) {
		f := c.failed[k]
		if complete = complete && (c.items[k] != nil || f.err != nil); f.err == nil {
			return
		}
		failed = append(failed, description)
		if earliest.err == nil || f.since.Before(earliest.since) {
			earliest = f
		}
	}
	for k, l := range c.lists {
		k := overview.Kind(k)
		for _, name := range v.section(k, l).Names {
			check(key{k, name}, k.Singular()+" "+strconv.Quote(name))
		}
		if v.job == "" {
			check(key{kind: k}, "the list of "+k.String())
		}
	}
	if v.job == "" && c.failed[key{kind: overview.Jobs}].err == nil {
		check(marksKey, "the states of all jobs")
	}
	for _, sent := range []time.Time{c.polled, c.searched} {
		if !sent.IsZero() && time.Since(sent) > staleAfter {
			return state{stale: "Redis has not answered for more than " + staleAfter.String() + ".", since: cmp.Or(earliest.since, sent)}
		}
	}
	if len(failed) == 0 {
		return state{live: complete}
	}
	if n := len(failed) - maxNamed; n > 0 {
		failed = append(failed[:maxNamed], strconv.Itoa(n)+" more")
	}
	text := "Not read: " + strings.Join(failed, ", ") + ". " + shorten(earliest.err.Error())
	var refused interface { // redis.Error
		error
		RedisError()
	}
	if errors.As(earliest.err, &refused) && !lockcore.IsTemporary(earliest.err) {
		text = "Redis refuses requests. " + text
	}
	return state{stale: text, since: earliest.since}
}

// choose returns the jobs that pass the filters of a view and that a verb can change.
func (c *cache) choose(v *view, verb string) ([]string, error) {
	c.mu.Lock()
	l := c.lists[overview.Jobs]
	c.mu.Unlock()
	if l == nil || l.marks == nil {
		return nil, errUnread
	}
	return slices.DeleteFunc(append([]string{}, v.choose(overview.Jobs, l)...), func(name string) bool {
		m, ok := l.marks[name]
		return !ok || verb == "pause" && m.Paused || verb == "resume" && !m.Paused || verb == "rerun" && !m.Failing
	}), nil
}
