package statusz

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/overview"
)

const (
	pageSize    = 25
	longestPart = 200 // bytes of the text that filters names, as long as the longest name
)

// A view is what one browser shows.
type view struct {
	part   string              // names contain it, in lower case
	job    string              // the only thing that is shown, if it is not empty
	state  string              // of states, for jobs
	order  string              // of orders, for jobs
	pages  [overview.Kinds]int // from 0
	nudged bell                // the stream looks for changes
	ended  chan struct{}       // closed by close of the reader

	lists    [overview.Kinds]*list // of sections
	sections [overview.Kinds]section
}

// parseView reads a view from the query of a URL. Invalid values count as missing.
func parseView(query url.Values) *view {
	v := &view{job: query.Get("job"), state: query.Get("state"), order: query.Get("sort"), nudged: make(bell, 1), ended: make(chan struct{})}
	if part := query.Get("q"); len(part) <= longestPart {
		v.part = strings.ToLower(part)
	}
	for k := range overview.Kinds {
		if n, err := strconv.Atoi(query.Get(k.String())); err == nil && n > 0 {
			v.pages[k] = n - 1
		}
	}
	return v
}

// A section is a page of a list.
type section struct {
	State string   `json:"state"` // "searching", "found" or "failed"
	Error string   `json:"error,omitempty"`
	All   int      `json:"all"`   // names of the kind
	Fit   int      `json:"fit"`   // those that fit the filters
	Page  int      `json:"page"`  // from 1
	Pages int      `json:"pages"` // at least 1
	Names []string `json:"names"`

	Counts map[string]int `json:"counts,omitempty"` // jobs in each state, whether they fit or not
}

// section returns the page of a list that the view shows. If the list has become shorter, it is
// the last page.
func (v *view) section(k overview.Kind, l *list) section {
	if v.lists[k] != l || v.sections[k].Names == nil {
		v.lists[k], v.sections[k] = l, v.cut(k, l)
	}
	return v.sections[k]
}

// fit returns the names that the filters of the view leave, in its order.
func (v *view) fit(k overview.Kind, l *list) (names []string) {
	for _, name := range l.names {
		if strings.Contains(strings.ToLower(name), v.part) {
			names = append(names, name)
		}
	}
	if k == overview.Jobs {
		names = overview.Choose(names, l.marks, v.state, cmp.Or(v.order, "attention"))
	}
	return names
}

// fit returns the jobs that the filters of a view leave and for which a verb can do something.
func (r *reader) fit(v *view, verb string) ([]string, error) {
	r.mu.Lock()
	l := r.lists[overview.Jobs]
	r.mu.Unlock()
	if l == nil || l.marks == nil {
		return nil, errUnread
	}
	return slices.DeleteFunc(append([]string{}, v.fit(overview.Jobs, l)...), func(name string) bool {
		m, known := l.marks[name]
		return !known || verb == "pause" && m.Paused || verb == "resume" && !m.Paused || verb == "rerun" && !m.Failing
	}), nil
}

func (v *view) cut(k overview.Kind, l *list) section {
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
	names := v.fit(k, l)
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
