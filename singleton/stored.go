package singleton

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	Payload  string `json:",omitzero"` // for Runner.Follow; up to 4 KiB of UTF-8. It is not logged.
	// Config needs no Revision. CreateJob compares what is given: a zero value and its default differ.
	Config JobConfig `json:",omitzero"`
}

// CreateJob stores a job, which all Runners that follow stored jobs then run: see Runner.Follow. The ledger begins now, so no
// earlier tick runs; a ledger that exists continues. A call with the same content changes nothing. If another job with the
// name is stored, the error is ErrExists. With replace, the job is changed instead, and its next tick has the new
// definition. Each change has a greater revision than all before, and a replica with a smaller one claims nothing.
// The job and its ledger stay until DeleteJob.
//
// Remove the job from the code of all programs first. As long as replicas have added a job of this name, the rule of
// JobConfig.Revision says which definition acts.
//
// The error is a *noonlock.ConfigError, ErrExists, or that of a request. If it matches lockcore.ErrUnknown, repeat the
// call. With replace, the first request may still arrive, and undo a later change.
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
		var acts uint64
		if acts, err = j.ledger.OfRevision(stored.Revision).Define(ctx); err != nil || acts <= stored.Revision {
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

// DeleteJob deletes a stored job. The contexts of its runs end with ErrCanceled as the cause, without a drain: at once by a
// message, at the latest at the next renewal. No other run is claimed. A run that waits is recorded as skipped, or as
// unknown if an attempt had begun. One skipped entry has the ticks that are due. The reason is "removed". The ledger is kept
// for a week. A repeated call changes nothing. It does not end a job that replicas have added.
//
// The name can be used again at once. No earlier tick runs then; the history and the tokens continue. Without AllowOverlap,
// the first tick waits until the runs of the deleted job have returned.
//
// An empty by.Who is the identity of the Client. The error is a *noonlock.ConfigError, ErrNoJob, or that of a request. If it
// matches lockcore.ErrUnknown, repeat the call. The first request may still arrive, and delete a job that was stored after it.
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

// encode returns what is stored of the job: the same for the same job, also by a later version. So it has no zero values: see
// the tags.
func (s JobSpec) encode() (string, error) {
	at, err := s.schedule()
	if err != nil {
		return "", fmt.Errorf("singleton: job %q: %w", s.Name, err)
	}
	if !utf8.ValidString(s.Payload) {
		return "", &noonlock.ConfigError{Package: "singleton", Field: "JobSpec.Payload", Value: "other bytes", Rule: "UTF-8"}
	}
	if len(s.Payload) > ledger.MaxPayload {
		return "", &noonlock.ConfigError{Package: "singleton", Field: "JobSpec.Payload", Value: fmt.Sprint(len(s.Payload), " bytes"), Rule: fmt.Sprint("at most ", ledger.MaxPayload, " bytes")}
	}
	s.Schedule, _ = ticks.Write(at, "")
	text, err := json.Marshal(s)
	return string(text), err
}

// decodeSpec reads what is stored. A field that this version does not know may change what the job does, so it is an error.
func decodeSpec(text string) (s JobSpec, err error) {
	d := json.NewDecoder(strings.NewReader(text))
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

// Follow makes the Runner run the stored jobs (CreateJob), in addition to those that were added. Call it once, before Run.
//
// The Runner calls work for each stored job and for each change of one, one call at a time. The result runs the job. With
// nil, this replica claims no tick of the job and is not one of its replicas, until the job changes or the Runner
// begins anew. A panic is logged and counts as nil. While work has not returned, this replica notices no other change, and Run
// does not return. Changes arrive by messages, and at the latest after 30 s.
//
// If work returns nil for a change, or this version cannot read it, the job ends here as by Remove. A stored job with the
// name of one that was added is logged and not run. Ready also requires that the stored jobs were read. The error is a
// *noonlock.ConfigError or ErrRunning.
//
// If Redis loses the stored jobs, replicas log that, continue with those that they know, and restore their ledgers, but
// nothing of what is stored; and a replica that restarts does not know them. Call CreateJob for each job again, also before
// DeleteJob. CreateJob and DeleteJob do not wait for Config.MinReplicas.
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
			if page.Newest < from {
				f.r.log.Error(errCatalogLost, "Redis lost stored jobs, or their newest changes; replicas continue with those that they know")
			}
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

var (
	// errStale is for a replica that was away for longer than the ledger of a deleted job is kept.
	errStale = errors.New("singleton: the stored jobs were not read since this replica was away")

	errBehind      = errors.New("singleton: the ledger has a newer revision than the stored job, because Redis lost a change: repeat the last CreateJob or DeleteJob")
	errCatalogLost = errors.New("singleton: stored jobs lost")
)

// behind reports whether the ledger has a newer revision of the job.
func (j *job) behind(st *ledger.State) bool { return j.revision > 0 && st.Revision() > j.revision }

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
	over = err == nil && left == 0 && len(f.mine) == 0
	if left == 0 {
		left = lookEvery // the work may not have returned although its lease has ended
	}
	return left + 2*time.Millisecond, over, err
}
