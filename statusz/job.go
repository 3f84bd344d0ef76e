package statusz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton"
)

const (
	mostRuns      = 100 // entries of the history on the page of a job
	mostSchedules = 20
	mostActs      = 100
)

// A jobPage is the JSON of the page of one job. Its errors are whole.
type jobPage struct {
	Status    singleton.Status  `json:"status"`
	Schedules []scheduleSince   `json:"schedules"` // newest first
	Runs      []singleton.Entry `json:"runs"`      // newest first
	More      bool              `json:"more,omitempty"`
	Acts      []singleton.Act   `json:"acts"` // newest first
}

type scheduleSince struct {
	Since time.Time `json:"since,omitzero"`
	Text  string    `json:"text"`
}

// job answers with all about one job, or 404.
func (p *Page) job(w http.ResponseWriter, r *http.Request) {
	if fromOtherSite(r) {
		http.Error(w, "statusz: jobs are only for the page itself", http.StatusForbidden)
		return
	}
	name := r.URL.Query().Get("name")
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	found, err := p.readJob(ctx, name)
	if errors.Is(err, singleton.ErrNoLedger) {
		http.Error(w, fmt.Sprintf("statusz: there is no job %s: no replica has ever run it, or its history has expired", input.Quote(name)), http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}

func (p *Page) readJob(ctx context.Context, name string) (found jobPage, err error) {
	j, err := singleton.NewJob(p.reader.client, name)
	if err != nil {
		return found, err
	}
	if found.Status, err = j.Status(ctx); err != nil {
		return found, err
	}
	if found.Runs, err = j.Runs(ctx, mostRuns+1); err != nil {
		return found, err
	}
	if found.More = len(found.Runs) > mostRuns; found.More {
		found.Runs = found.Runs[:mostRuns]
	}
	if found.Acts, err = j.Acts(ctx, mostActs); err != nil {
		return found, err
	}
	schedules, err := j.Schedules(ctx)
	if err != nil {
		return found, err
	}
	found.Schedules = []scheduleSince{}
	for _, s := range slices.Backward(schedules[max(0, len(schedules)-mostSchedules):]) {
		found.Schedules = append(found.Schedules, scheduleSince{s.Since, s.Text})
	}
	return found, nil
}
