package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock/lockcore"
)

var _ resourcelock.Interface = (*Lock)(nil)

// A Lock is a resourcelock.Interface on a record in Redis, for one elector. Its
// methods may be called from any goroutine, but it remembers what was read last
// for all of them: who shares it between electors lets both lead.
type Lock struct {
	name     string
	identity string
	retain   time.Duration
	record   *lockcore.Record
	recorder resourcelock.EventRecorder
	subject  runtime.Object
	hold     hold

	mu   sync.Mutex
	last sight
}

// A sight is what a Lock knows of the record.
type sight struct {
	version lockcore.RecordVersion // zero: there was none, or nobody has looked
	own     bool                   // this Lock has written it
}

func (l *Lock) sight() sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *Lock) see(s sight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = s
}

// seeRead is see of what was read, which does not rule out that a write of ours
// with an unknown outcome is yet to come: it stays ours.
func (l *Lock) seeRead(s sight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.version.Includes(s.version) {
		s.version = l.last.version
	}
	l.last = s
}

// Get returns the record as it is now, and bytes that differ after every write,
// also of the same values. The error is a NotFound if there is none.
//
// A holder of this Lock's own identity that is another candidate's is returned
// with a remark behind it, so that an elector does not take it for itself.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	won := l.hold.won()
	state, err := l.record.Get(ctx)
	if errors.Is(err, lockcore.ErrNoRecord) {
		l.seeRead(sight{})
		l.hold.endSince(won, lockcore.ErrLeaseLost)
		return nil, nil, apierrors.NewNotFound(resource, l.name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("clientgo: get: %w", err)
	}
	var spec coordinationv1.LeaseSpec
	if err := json.Unmarshal(state.Value, &spec); err != nil {
		return nil, nil, fmt.Errorf("clientgo: get %q: the record is not a Lease's spec: %w", l.name, err)
	}
	l.seeRead(sight{version: state.Version, own: state.Own})
	if !state.Own {
		l.hold.endSince(won, lockcore.ErrLeaseLost)
	}
	ler := resourcelock.LeaseSpecToLeaderElectionRecord(&spec)
	if ler.HolderIdentity == l.identity && !state.Own {
		ler.HolderIdentity += namesake
	}
	return ler, fmt.Appendf(nil, "%s %s", state.Version, state.Value), nil
}

// namesake is put behind the identity of a holder that only has the same name.
const namesake = " (another candidate of this identity)"

var resource = schema.GroupResource{Group: "noonlock", Resource: "records"}

// Create writes the first record. The error is a Conflict if there is one, unless
// it is this Lock's own, of a Create whose outcome was unknown.
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	s := l.sight()
	if !s.version.Includes(lockcore.RecordVersion{}) {
		s = sight{}
	}
	return l.write(ctx, "create", s, ler)
}

// Update writes the record if it is still what this Lock has read or written last.
// The error is a Conflict otherwise, also if there is none any more; after an
// error that is lockcore.ErrUnknown the next Update succeeds whether or not this
// one was applied.
//
// A record without holder is a release. The error is lockcore.ErrNotHeld if the record is
// not this Lock's own: an elector may believe that it leads when another does, and it
// releases what it has just read. That is no Conflict, after which client-go's elector
// reads and releases again at once, for as long as RenewDeadline.
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	if ler.HolderIdentity == "" {
		l.hold.end(lockcore.ErrReleased) // first, as others may lead once it is written
	}
	s := l.sight()
	if s.version.String() == (lockcore.RecordVersion{}).String() {
		return ErrNotRead
	}
	if ler.HolderIdentity == "" && !s.own {
		return fmt.Errorf("clientgo: release %q: %w", l.name, lockcore.ErrNotHeld)
	}
	return l.write(ctx, "update", s, ler)
}

func (l *Lock) write(ctx context.Context, verb string, s sight, ler resourcelock.LeaderElectionRecord) error {
	if ler.LeaseDurationSeconds < 1 || ler.LeaseDurationSeconds > maxLease {
		return &ConfigError{
			"LeaderElectionRecord.LeaseDurationSeconds", strconv.Itoa(ler.LeaseDurationSeconds),
			"from 1 to 31536000: client-go counts leases in whole seconds, so LeaseDuration must be at least 1s",
		}
	}
	value, err := json.Marshal(resourcelock.LeaderElectionRecordToLeaseSpec(&ler))
	if err != nil {
		return fmt.Errorf("clientgo: %s %q: %w", verb, l.name, err)
	}
	keep := time.Duration(ler.LeaseDurationSeconds)*time.Second + l.retain
	t0 := l.hold.elapsed()
	version, err := l.record.Put(ctx, s.version, value, keep)
	switch {
	case err == nil:
		l.see(sight{version: version, own: true})
		if ler.HolderIdentity != "" {
			l.hold.extend(t0, ler.LeaseDurationSeconds)
		}
		return nil
	case errors.Is(err, lockcore.ErrConflict):
		l.hold.end(lockcore.ErrLeaseLost)
		return l.conflict(err)
	case errors.Is(err, lockcore.ErrUnknown):
		l.see(sight{version: version, own: s.own})
	}
	return fmt.Errorf("clientgo: %s: %w", verb, err)
}

func (l *Lock) conflict(why error) error { return apierrors.NewConflict(resource, l.name, why) }

// RecordEvent gives what happened to Config.EventRecorder, after the identity.
func (l *Lock) RecordEvent(what string) {
	if l.recorder != nil {
		l.recorder.Eventf(l.subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.identity, what)
	}
}

// Identity is Config.Identity.
func (l *Lock) Identity() string { return l.identity }

// Describe names the lock in the elector's logs.
func (l *Lock) Describe() string { return "redis/" + l.name }
