package statusz

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/retry"
)

// A list is the result of a search. It does not change.
type list struct {
	names []string
	err   error
	marks map[string]overview.Mark // nil until the jobs are read
}

const (
	pageSize  = 25
	maxFilter = 200 // bytes; no name is longer
)

// A view is what one browser shows.
type view struct {
	filter  string              // part of the names, in lower case
	job     string              // name of a job that is shown alone
	state   string              // key of overview.States
	order   string              // key of overview.Orders
	pages   [overview.Kinds]int // from 0
	changed retry.Signal        // wakes the stream
	ended   chan struct{}       // closed by reader.close

	lists    [overview.Kinds]*list // lists from which sections were made
	sections [overview.Kinds]section
}

// parseView reads a view from the query of a URL. Invalid values count as missing.
func parseView(query url.Values) *view {
	v := &view{job: query.Get("job"), state: query.Get("state"), order: query.Get("sort"), changed: retry.NewSignal(), ended: make(chan struct{})}
	if filter := query.Get("q"); len(filter) <= maxFilter {
		v.filter = strings.ToLower(filter)
	}
	for k := range overview.Kinds {
		if n, err := strconv.Atoi(query.Get(k.String())); err == nil && n > 0 {
			v.pages[k] = n - 1
		}
	}
	return v
}

// A section is the part of a list that a view shows.
type section struct {
	State string   `json:"state"` // "searching", "found" or "failed"
	Error string   `json:"error,omitempty"`
	All   int      `json:"all"`   // names of the kind
	Fit   int      `json:"fit"`   // names that pass the filters
	Page  int      `json:"page"`  // from 1
	Pages int      `json:"pages"` // at least 1
	Names []string `json:"names"`

	Counts map[string]int `json:"counts,omitempty"` // jobs in each state, unfiltered
}

// section returns the page of a list that the view shows, or the last page of a list that has become shorter.
func (v *view) section(k overview.Kind, l *list) section {
	if v.lists[k] != l || v.sections[k].Names == nil {
		v.lists[k], v.sections[k] = l, v.makeSection(k, l)
	}
	return v.sections[k]
}

// choose returns the names that pass the filters of the view, in its order.
func (v *view) choose(k overview.Kind, l *list) (names []string) {
	for _, name := range l.names {
		if strings.Contains(strings.ToLower(name), v.filter) {
			names = append(names, name)
		}
	}
	if k == overview.Jobs {
		names = overview.Choose(names, l.marks, v.state, cmp.Or(v.order, "attention"))
	}
	return names
}

func (v *view) makeSection(k overview.Kind, l *list) section {
	s := section{State: "searching", Page: 1, Pages: 1, Names: []string{}}
	if v.job != "" {
		s.State = "found"
		if k == overview.Jobs {
			s.All, s.Fit, s.Names = 1, 1, []string{v.job}
		}
		return s
	}
	if l == nil {
		return s
	}
	s.State, s.All = "found", len(l.names)
	if l.err != nil {
		s.State, s.Error = "failed", l.err.Error()
	}
	names := v.choose(k, l)
	if k == overview.Jobs {
		s.Counts = overview.Count(l.marks)
		if l.marks == nil && overview.States[v.state] != nil && l.err == nil {
			s.State = "searching"
		}
	}
	s.Fit = len(names)
	s.Pages = max(1, (len(names)+pageSize-1)/pageSize)
	page := min(v.pages[k], s.Pages-1)
	s.Page = page + 1
	s.Names = append(s.Names, names[min(page*pageSize, len(names)):min((page+1)*pageSize, len(names))]...)
	return s
}
