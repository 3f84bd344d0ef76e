package statusz

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton"
)

//go:embed assets
var assets embed.FS

// policy is the Content-Security-Policy of all answers.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// files are the constant parts of the page, with their types.
var files = map[string]string{
	"page.html": "text/html; charset=utf-8",
	"page.css":  "text/css; charset=utf-8",
	"page.js":   "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

// ServeHTTP answers GET and HEAD for the page and for the parts below its path, and POST for
// actions.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if len(p.cfg.Hosts) > 0 && !slices.Contains(p.cfg.Hosts, hostname(r.Host)) {
		http.Error(w, "statusz: this host name is not one of Config.Hosts", http.StatusMisdirectedRequest)
		return
	}
	part := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if part == "act" {
		p.act(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "statusz: the method must be GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	switch part {
	case "events":
		p.stream(w, r)
		return
	case "job", "jobs", "terms":
		p.read(w, r, part)
		return
	}
	if part == "" {
		part = "page.html"
	}
	contentType, ok := files[part]
	if !ok {
		http.NotFound(w, r)
		return
	}
	content, _ := assets.ReadFile("assets/" + part) // each of files exists
	header.Set("Content-Type", contentType)
	_, _ = w.Write(content)
}

// read answers with the details of a job, the terms of an election, or the jobs that an action would change.
func (p *Page) read(w http.ResponseWriter, r *http.Request, part string) {
	if fromOtherSite(r) {
		http.Error(w, "statusz: this is only for the page itself", http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	name := query.Get("name")
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	var found any
	var err error
	switch part {
	case "job":
		var d overview.Details
		d, err = overview.Job(ctx, p.reader.client, name, overview.MaxActs)
		found = d.Describe()
	case "terms":
		var e *election.Election
		if e, err = election.NewElection(p.reader.client, name); err == nil {
			var all []election.LeaderRecord
			all, err = e.Terms(ctx)
			found = overview.Terms(all)
		}
	default:
		found, err = p.reader.choose(parseView(query), query.Get("act"))
	}
	switch {
	case errors.Is(err, singleton.ErrNoLedger):
		http.Error(w, fmt.Sprintf("statusz: there is no job %s: no replica has ever run it, or its history has expired", input.Quote(name)), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), codeOf(err))
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	}
}
