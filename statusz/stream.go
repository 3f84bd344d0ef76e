package statusz

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/console/overview"
)

const (
	checkInterval = time.Second     // between two checks of the state
	maxSilence    = 5 * time.Second // between two frames, even without a change
	writeTimeout  = 10 * time.Second
)

// A frame is one event. Times are ms since 1970 on the server's clock.
type frame struct {
	Title    string                       `json:"title,omitempty"`   // only in the first frame
	Actions  bool                         `json:"actions,omitempty"` // allowed; only in the first frame
	Now      int64                        `json:"now"`
	Live     bool                         `json:"live,omitempty"`  // see state
	Stale    string                       `json:"stale,omitempty"` // see state
	Since    int64                        `json:"since,omitempty"` // see state
	Sections map[string]section           `json:"sections,omitempty"`
	Items    map[string][]json.RawMessage `json:"items,omitempty"`
}

// A stream is the content that one browser has received.
type stream struct {
	view     *view
	lists    [overview.Kinds]*list
	sections bool // sections were sent
	items    map[key]*item
	state    state
	at       time.Time // time of the last frame
}

// stream sends the view of a query, and its changes, until the browser leaves.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	if fromOtherSite(r) { // another site could not read the events, but could use up all streams
		http.Error(w, "statusz: streams are only for the page itself", http.StatusForbidden)
		return
	}
	v := parseView(r.URL.Query())
	if err := p.reader.join(r.Context(), v); err != nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer p.reader.leave(v)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	out := http.NewResponseController(w)
	s := &stream{view: v, items: map[key]*item{}}
	title := p.cfg.Title
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for {
		if f, ok := p.reader.frame(s, time.Now()); ok {
			f.Actions, f.Title, title = title != "" && p.cfg.AllowActions, title, ""
			data, err := json.Marshal(f)
			if err != nil {
				return
			}
			// A browser that does not read is disconnected, unless the server has no deadlines.
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(append(append([]byte("data: "), data...), "\n\n"...)); err != nil {
				return
			}
			if err := out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-v.ended:
			return
		case <-v.changed:
		case <-check.C:
		}
	}
}

func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// frame returns the changes that a browser has not received yet. ok is false without changes.
func (r *reader) frame(s *stream, now time.Time) (f frame, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.state(s.view)
	f = frame{Now: now.Add(r.ahead).UnixMilli(), Live: st.live, Stale: st.stale, Sections: map[string]section{}, Items: map[string][]json.RawMessage{}}
	for k, l := range r.lists {
		k := overview.Kind(k)
		section := s.view.section(k, l)
		if !s.sections || s.lists[k] != l {
			f.Sections[k.String()] = section
			s.lists[k] = l
			// The browser has dropped the rows of all other names.
			maps.DeleteFunc(s.items, func(at key, _ *item) bool { return at.kind == k && !slices.Contains(section.Names, at.name) })
		}
		for _, name := range section.Names {
			at := key{k, name}
			if it := r.items[at]; it != nil && s.items[at] != it {
				f.Items[k.String()] = append(f.Items[k.String()], it.json)
				s.items[at] = it
			}
		}
	}
	if st.stale != "" {
		f.Since = st.since.Add(r.ahead).UnixMilli()
	}
	ok = !s.sections || len(f.Sections) > 0 || len(f.Items) > 0 || st != s.state || now.Sub(s.at) >= maxSilence
	if ok {
		s.sections, s.state, s.at = true, st, now
	}
	return f, ok
}
