// Package noon is the job that all replicas run. At each noon it draws winners from the eligible
// entrants and records them once, whichever replica runs the job. Each replica has a Runner of NewRunner.
package noon

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// Job is the name of the job in the ledger and in the database.
const Job = "lottery"

// JobConfig is the configuration of the job, and never changes. A noon that could not be drawn in time is
// drawn late: the entrants were promised a draw. Attempts are up to a minute apart, so with 1000 of them the
// database may be away for most of a day. 1000 runs are the daily noons of more than two years.
var JobConfig = singleton.JobConfig{CatchUp: singleton.CatchUpAll, MaxAttempts: 1000, KeepRuns: 1000}

// Drawing draws noons. Its fields must not change after the first use.
type Drawing struct {
	Store    *store.Store
	Entrants Entrants
	Winners  int         // per noon
	Logger   logr.Logger // receives a line for each draw
	// Admit, if set, is called before the commit. Its error means that the database must have no draws.
	Admit func(ctx context.Context, database string) error
	// Written, if set, is called after the winners are written and before the commit. Its error
	// rolls them back.
	Written func(run singleton.Run, winners []string) error
}

// Draw draws the noon of a run. The winners and a marker of the noon are committed in one
// transaction. So however often, however late and by however many replicas Draw is called, one
// call has an effect.
func (d *Drawing) Draw(ctx context.Context, run singleton.Run) error {
	applied, err := d.Store.Once.Do(ctx, run.Marker(), func(ctx context.Context, tx *sql.Tx) error {
		winners, err := Winners(d.Entrants.Eligible(), d.Winners)
		if err == nil {
			err = d.Store.Record(ctx, tx, run, winners)
		}
		if err == nil && d.Admit != nil {
			var database string
			if database, err = d.Store.Origin(ctx, tx); err == nil {
				err = d.Admit(ctx, database)
			}
		}
		if err == nil && d.Written != nil {
			err = d.Written(run, winners)
		}
		return err
	})
	if err != nil {
		return err
	}
	message := "draw committed"
	if !applied {
		message = "draw was already committed"
	}
	d.Logger.Info(message, "job", run.Job, "tick", run.Tick, "triggered", run.Triggered, "attempt", run.Attempt, "token", run.Token)
	return nil
}

// NewRunner returns a Runner whose work, usually Drawing.Draw, draws the noons of a schedule. A draw in progress
// may continue for drain after the end of Run's context. Recording the draw may take another 4 s.
func NewRunner(c *lockcore.Client, lease, drain time.Duration, spec string, zone *time.Location, work func(context.Context, singleton.Run) error) (*singleton.Runner, error) {
	// A Drain of -1 is none; 0 would be the default.
	runner, err := singleton.NewRunner(c, singleton.Config{TTL: lease, Drain: cmp.Or(drain, -1), ShutdownTimeout: drain + 4*time.Second})
	if err != nil {
		return nil, err
	}
	job := JobConfig
	job.TimeZone = zone
	return runner, runner.Add(Job, spec, work, job)
}

// Noons returns the schedule of the job.
func Noons(spec string, zone *time.Location) (schedule.Schedule, error) {
	return schedule.Parse(spec, schedule.Config{TimeZone: zone, Name: Job})
}

// Entrants are the ids of a list. The value says whether an entrant is eligible.
type Entrants map[string]bool

// Eligible returns the ids of the eligible entrants.
func (e Entrants) Eligible() (ids []string) {
	for id, eligible := range e {
		if eligible {
			ids = append(ids, id)
		}
	}
	return ids
}

// ReadEntrants reads a CSV file with the header id,eligible. An error names the line and the rule.
func ReadEntrants(file io.Reader) (Entrants, error) {
	r := csv.NewReader(file)
	r.FieldsPerRecord = 2
	all := Entrants{}
	for isHeader := true; ; isHeader = false {
		record, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the list has no entrants; it must have the header id,eligible and a line for each entrant")
		case err != nil:
			return nil, err // names the line and the rule
		case isHeader && strings.TrimPrefix(strings.Join(record, ","), "\ufeff") != "id,eligible": // spreadsheets write the byte order mark
			return nil, fmt.Errorf("line 1: the header is %.60q; it must be id,eligible", strings.Join(record, ","))
		case isHeader:
			continue
		}
		id, eligible := record[0], record[1]
		_, twice := all[id]
		line, _ := r.FieldPos(0)
		switch {
		case id == "" || len(id) > 200 || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) || strings.TrimSpace(id) != id:
			return nil, fmt.Errorf("line %d: the id is %.60q; it must be 1 to 200 bytes of UTF-8 without control characters, and without space at either end", line, id)
		case twice:
			return nil, fmt.Errorf("line %d: the id is %q, as in an earlier line; it must be unique", line, id)
		case eligible != "true" && eligible != "false":
			return nil, fmt.Errorf("line %d: eligible is %.60q; it must be true or false", line, eligible)
		}
		all[id] = eligible == "true"
	}
}

// MaxWinners is the greatest number of winners of one draw.
const MaxWinners = 1000

// Winners returns k of the ids in random order. Every set of k is equally likely, and so is every
// order of the set. Winners changes the order of ids.
func Winners(ids []string, k int) ([]string, error) {
	if len(ids) < k {
		return nil, fmt.Errorf("the number of eligible entrants is %d; it must be at least %d, the number of winners", len(ids), k)
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) // nobody can predict it: the system gives the seed
	return ids[:k], nil
}
