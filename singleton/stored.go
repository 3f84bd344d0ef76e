package singleton

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A JobSpec is a job that is stored in Redis: see CreateJob.
type JobSpec struct {
	Name string
	// Schedule is a text that schedule.Parse reads with UTC and the name, such as "0 12 * * *", or the String of what it has
	// returned, such as "0 12 * * * in Europe/Berlin".
	Schedule string
	Payload  string    // for Runner.Follow; up to 4 KiB of UTF-8. It is not logged.
	Config   JobConfig // its Revision is not needed
}

// maxPayload limits JobSpec.Payload.
const maxPayload = 4096

// CreateJob stores a job, which all Runners that follow stored jobs then run: see Runner.Follow. Its ledger begins now, so
// no earlier tick runs; a ledger of a job that replicas had in their code continues. A call with the same content changes nothing. If another job with the name is stored, the error
// is ErrExists, or replace is true: then its next tick has the new definition. Each change has a revision, which is greater
// than all before; a replica with a smaller one runs nothing. The job stays until DeleteJob, its ledger too.
//
// The error is a *noonlock.ConfigError, ErrExists, or that of a request. If it matches lockcore.ErrUnknown, repeat the
// call.
func CreateJob(ctx context.Context, client *lockcore.Client, spec JobSpec, replace bool) error {
	what := ledger.ChangeCreate
	if replace {
		what = ledger.ChangeReplace
	}
	catalog, err := ledger.NewCatalog(client)
	if err != nil {
		return err
	}
	text, err := spec.encode()
	if err != nil {
		return err
	}
	j, err := spec.job(client, lockcore.LeaseConfig{}, nothing, 0)
	if err == nil && spec.Config.Group != (Group{}) {
		_, err = spec.Config.Group.semaphore(client, lockcore.LeaseConfig{})
	}
	if err != nil {
		return err
	}
	stored, err := catalog.Change(ctx, j.ledger, what, text, 0)
	for err == nil {
		if j, err = spec.job(client, lockcore.LeaseConfig{}, nothing, stored.Revision); err != nil {
			break
		}
		var acts uint64
		if acts, err = j.ledger.Define(ctx); err != nil || acts <= stored.Revision {
			break
		}
		// The catalog has lost data, or another call has changed the job since. Then that is the later one.
		if stored, err = catalog.Change(ctx, j.ledger, ledger.ChangeRenew, text, acts); errors.Is(err, ErrExists) {
			return nil
		}
	}
	return input.Operation("singleton", "create job", spec.Name, err)
}

func nothing(context.Context, Run) error { return nil }

// DeleteJob deletes a stored job. The contexts of its runs end with ErrCanceled as the cause; no other run is claimed. Runs that
// are open and ticks that are due are recorded, with the reason removed. The history stays for a week. A repeated call
// changes nothing. The name can be used again at once; the job then begins as a new one.
//
// An empty by.Who is the identity of the Client. The error is a *noonlock.ConfigError, ErrNoJob, or that of a request. If it
// matches lockcore.ErrUnknown, repeat the call: otherwise the request may still come, and delete a job that was stored since.
func DeleteJob(ctx context.Context, client *lockcore.Client, name string, by lockcore.Operator) error {
	catalog, err := ledger.NewCatalog(client)
	if err != nil {
		return err
	}
	l, err := ledger.Handle(client, name)
	if err == nil {
		l, err = l.By(by)
	}
	if err != nil {
		return translate(err, "", fmt.Sprintf("job %q", name))
	}
	_, err = catalog.Change(ctx, l, ledger.ChangeDelete, l.Author(), 0)
	return input.Operation("singleton", "delete job", name, err)
}

// Errors of CreateJob and DeleteJob, for errors.Is.
var (
	// ErrExists is returned by CreateJob if another job with the name is stored.
	ErrExists = errs.exists

	// ErrNoJob is returned by DeleteJob if no job with the name is stored.
	ErrNoJob = errs.noJob
)

// encode returns what is stored of the job: the same for the same job, also by a later version. So it has no zero values.
func (s JobSpec) encode() (string, error) {
	at, err := s.schedule()
	if err != nil {
		return "", fmt.Errorf("singleton: job %q: %w", s.Name, err)
	}
	if !utf8.ValidString(s.Payload) {
		return "", &noonlock.ConfigError{Package: "singleton", Field: "JobSpec.Payload", Value: "other bytes", Rule: "UTF-8"}
	}
	if len(s.Payload) > maxPayload {
		return "", &noonlock.ConfigError{Package: "singleton", Field: "JobSpec.Payload", Value: fmt.Sprint(len(s.Payload), " bytes"), Rule: fmt.Sprint("at most ", maxPayload, " bytes")}
	}
	s.Schedule, _ = ticks.Write(at, "")
	text, err := json.Marshal(s)
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = errors.Join(err, d.Decode(&all))
	withoutZeros(all)
	text, wrong := json.Marshal(all)
	return string(text), errors.Join(err, wrong)
}

// withoutZeros removes the values that are zero.
func withoutZeros(object map[string]any) {
	for key, value := range object {
		part, isObject := value.(map[string]any)
		withoutZeros(part)
		if isObject && len(part) == 0 || value == false || value == "" || value == json.Number("0") {
			delete(object, key)
		}
	}
}

// decodeSpec reads what is stored. A field that this version does not know may change what the job does, so it is an error.
func decodeSpec(text string) (s JobSpec, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	return s, d.Decode(&s)
}

func (s JobSpec) schedule() (schedule.Schedule, error) {
	if strings.Contains(s.Schedule, " in ") {
		return ticks.Read(s.Schedule)
	}
	return schedule.Parse(s.Schedule, schedule.Config{Name: s.Name})
}

// job returns the job of a revision.
func (s JobSpec) job(client *lockcore.Client, lease lockcore.LeaseConfig, work func(ctx context.Context, run Run) error, revision uint64) (*job, error) {
	at, err := s.schedule()
	if err != nil {
		return nil, fmt.Errorf("singleton: job %q: %w", s.Name, err)
	}
	return define(client, lease, s.Name, at, work, s.Config, revision)
}

// Follow makes the Runner run the jobs that are stored (CreateJob), beside those that were added. Call it once, before Run.
// For each stored job, and for each change of one, the Runner calls work, one call at a time; a panic is logged. The result is the work of the
// job, or nil if this replica has no code for it. Then it claims no tick of the job, and does not count as a replica of
// it. Replicas notice changes by messages, and at the latest when they look, every 30 s.
//
// Only the deletion of a job ends it here. If Redis loses its data, replicas continue with the jobs that they know, and
// restore their ledgers, but not what is stored: CreateJob has to store it again, also before DeleteJob. A stored job with the name of one
// that was added, and one that this version cannot read, are logged and not run. Ready also requires that the stored jobs
// were read. The error is a *noonlock.ConfigError or ErrRunning.
func (r *Runner) Follow(work func(spec JobSpec) func(ctx context.Context, run Run) error) error {
	if work == nil {
		return &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	catalog, err := ledger.NewCatalog(r.client)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begin != nil || r.catalog != nil {
		return fmt.Errorf("singleton: follow stored jobs: %w", ErrRunning)
	}
	r.catalog = &catalogFollower{r: r, of: catalog, work: work}
	return nil
}

// A catalogFollower adds the stored jobs to a Runner, and changes and removes them.
type catalogFollower struct {
	r     *Runner
	of    *ledger.Catalog
	work  func(spec JobSpec) func(ctx context.Context, run Run) error
	ready readiness.State

	upTo   uint64        // all changes up to this revision are known
	looked time.Duration // when it had read all, by Elapsed; r.mu guards it
}

// follow reads the catalog until ctx ends.
func (f *catalogFollower) follow(ctx context.Context) {
	reports := lock.Of(f.r.client).Reports("catalogs", "stored jobs cannot be read; changes are delayed", "stored jobs can be read again")
	l := newLoop(&f.ready, f.r.log, reports, true)
	defer f.of.Watch(l.wake)()
	defer f.ready.Run(ctx)()
	_ = l.run(ctx, func() (pause time.Duration, _ bool, err error) { return lookEvery, false, f.look(ctx) })
}

// look reads what has changed, or everything: if the catalog is older than what is known, it has lost data, and if it has
// dropped a deletion that is not known, the jobs that it lacks tell which.
func (f *catalogFollower) look(ctx context.Context) error {
	now := lock.Of(f.r.client).Elapsed
	from, began, dropped := f.upTo, now(), uint64(0)
	var all map[string]bool
	for {
		page, err := f.of.Look(ctx, from)
		if err != nil {
			return err
		}
		if all == nil && (page.Newest < from || page.Dropped > from) {
			from, all, dropped = 0, map[string]bool{}, page.Dropped
			continue
		}
		for _, one := range page.Live {
			if all != nil {
				all[one.Name] = true
			}
			f.r.stored(one, f.work)
		}
		for _, one := range page.Gone {
			f.r.deleted(one)
		}
		if from = page.UpTo; from < page.Newest {
			continue
		}
		f.upTo = from
		if all != nil {
			for _, name := range f.r.lacks(all) {
				f.r.deleted(ledger.Stored{Name: name, Revision: dropped, Text: "{}"})
			}
			if page.Dropped > dropped {
				f.upTo = dropped // perhaps of a job that was read before
			}
		}
		f.r.mu.Lock()
		f.looked = began
		f.r.mu.Unlock()
		return nil
	}
}

// lacks returns the names of the stored jobs of the Runner that are not among all.
func (r *Runner) lacks(all map[string]bool) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, j := range r.jobs {
		if j.revision > 0 && !all[name] {
			names = append(names, name)
		}
	}
	return names
}

// stored adds or changes a stored job, or ends it here if there is no code for it.
func (r *Runner) stored(one ledger.Stored, workOf func(spec JobSpec) func(ctx context.Context, run Run) error) {
	r.mu.Lock()
	before := r.jobs[one.Name]
	r.mu.Unlock()
	if before != nil && before.revision >= one.Revision {
		return
	}
	spec, err := decodeSpec(one.Text)
	var work func(context.Context, Run) error
	if err == nil && (before == nil || before.revision > 0) {
		err = protect(r.log.WithValues("job", one.Name), func() error { work = workOf(spec); return nil })
	}
	var j *job
	if err == nil && work != nil {
		if j, err = spec.job(r.client, r.lease(), work, one.Revision); err == nil {
			j.group, err = r.group(spec.Config.Group)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.jobs[one.Name]
	switch {
	case before != nil && before.revision == 0:
		err = errors.New("singleton: the runner has a job of its own with this name")
	case err == nil && j != nil:
		r.replace(before, j)
	case before != nil:
		r.drop(before)
	}
	if err != nil {
		r.log.Error(err, "stored job not followed", "job", one.Name, "revision", one.Revision)
	}
}

// deleted ends a stored job: its runs are canceled, and its ledger learns the deletion.
func (r *Runner) deleted(one ledger.Stored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.jobs[one.Name]
	if j == nil || j.revision == 0 || j.revision >= one.Revision {
		return
	}
	delete(r.jobs, one.Name)
	if j.follower == nil {
		j.metrics.forget()
		return
	}
	j.follower.notice(change{gone: &one})
}

// definition returns the text that names a definition in the ledger.
func definition(spec string, cfg JobConfig, revision uint64) string {
	text := fingerprint(spec, cfg)
	if revision > 0 {
		text += "@" + strconv.FormatUint(revision, 10)
	}
	return text
}

var (
	// errStale is for a replica that was away for longer than the ledger of a deleted job is kept.
	errStale = errors.New("singleton: the stored jobs were not read since this replica was away")

	errBehind = errors.New("singleton: the ledger has a newer revision than the stored job, which was lost: CreateJob stores it again")
)

// wasAway reports whether the job may have been deleted so long ago that its ledger has ended.
func (f *follower) wasAway() bool {
	return f.j.revision > 0 && lock.Of(f.r.client).Elapsed()-f.opened >= 24*time.Hour
}

// mayOpen returns an error if the replica was away, and has not read the stored jobs since.
func (f *follower) mayOpen() error {
	if !f.wasAway() {
		return nil
	}
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if lock.Of(f.r.client).Elapsed()-f.r.catalog.looked > 2*lookEvery {
		return errStale
	}
	return nil
}

// remove takes the job, which was deleted, to its end on this replica.
func (f *follower) remove(ctx context.Context) (pause time.Duration, over bool, err error) {
	left, err := f.j.ledger.Remove(ctx, *f.gone)
	if left == 0 {
		left = lookEvery // the work may not have returned although its lease has ended
	}
	return left + 2*time.Millisecond, err == nil && left == lookEvery && len(f.mine) == 0, err
}
