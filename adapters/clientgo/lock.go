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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

var _ resourcelock.Interface = (*Lock)(nil)

// A Lock is a resourcelock.Interface for a record in Redis, for one elector. Its methods may be
// called from any goroutine. It stores the version that was read last, so electors must not
// share a Lock: both could lead.
type Lock struct {
	name     string
	identity string
	record   *cas.Record
	recorder resourcelock.EventRecorder
	elapsed  func() time.Duration // the Client's clock

	mu   sync.Mutex
	last sight

	until time.Duration // the end of the Lock's own leadership
	ended error         // why it is over; nil: it may not be
	bound map[*boundContext]struct{}
	timer *time.Timer // of check
}

// A sight is the last version of the record that the Lock knows.
type sight struct {
	version cas.Version // zero: there was none, or it was not read yet
	own     bool        // written by this Lock
}

func (l *Lock) sight() sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// see records what a Get has found that began at a sight, unless a write has changed the version since.
func (l *Lock) see(before, now sight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.version != before.version {
		return
	}
	if !now.own {
		l.end(lockcore.ErrLeaseLost)
	}
	if before.version.Includes(now.version) {
		now.version = before.version // a write with an unknown outcome may still arrive
	}
	l.last = now
}

// Get returns the record and its raw bytes, which differ after every write, even of the same
// values. The error is a NotFound if there is no record.
//
// If another candidate with this Lock's identity holds the record, Get appends a remark to the
// identity, so that the elector does not take the record for its own.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.check()
	before := l.sight()
	state, err := l.record.Get(ctx)
	if errors.Is(err, cas.ErrNone) {
		l.see(before, sight{})
		return nil, nil, apierrors.NewNotFound(resource, l.name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("clientgo: get %q: %w", l.name, err)
	}
	var spec coordinationv1.LeaseSpec
	if err := json.Unmarshal(state.Value, &spec); err != nil {
		return nil, nil, fmt.Errorf("clientgo: get %q: the record is not a Lease's spec: %w", l.name, err)
	}
	l.see(before, sight{version: state.Version, own: state.Own})
	ler := resourcelock.LeaseSpecToLeaderElectionRecord(&spec)
	if ler.HolderIdentity == l.identity && !state.Own {
		ler.HolderIdentity += namesake
	}
	return ler, fmt.Appendf(nil, "%s %s", state.Version, state.Value), nil
}

// namesake is appended to the identity of another candidate with the same identity.
const namesake = " (another candidate of this identity)"

var resource = schema.GroupResource{Group: "noonlock", Resource: "records"}

// Create writes the first record. The error is a Conflict if there is a record, unless it is
// this Lock's own, from a Create whose outcome was unknown.
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	s := l.sight()
	if !s.version.Includes(cas.Version{}) {
		s = sight{}
	}
	return l.write(ctx, "create", s, ler)
}

// Update writes the record if this Lock has read or written its version last. Otherwise the
// error is a Conflict, even if the record was deleted. After an error that is
// lockcore.ErrUnknown, the next Update succeeds whether or not this one was applied.
//
// A record without a holder is a release. If the record is not this Lock's own, the
// error is lockcore.ErrNotHeld. This happens when an elector still acts as the leader
// after another one has taken over, and then releases the record that it has just
// read. The error is not a Conflict, after which client-go's elector would read and
// release again in a loop until RenewDeadline.
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	if ler.HolderIdentity == "" {
		l.mu.Lock()
		l.end(lockcore.ErrReleased) // before the write, since others may lead after it
		l.mu.Unlock()
	}
	s := l.sight()
	if s.version == (cas.Version{}) {
		return ErrNotRead
	}
	if ler.HolderIdentity == "" && !s.own {
		return fmt.Errorf("clientgo: release %q: %w", l.name, lockcore.ErrNotHeld)
	}
	return l.write(ctx, "update", s, ler)
}

func (l *Lock) write(ctx context.Context, verb string, s sight, ler resourcelock.LeaderElectionRecord) error {
	if ler.LeaseDurationSeconds < 1 || ler.LeaseDurationSeconds > maxLease {
		return &noonlock.ConfigError{
			Package: "clientgo",
			Field:   "LeaderElectionRecord.LeaseDurationSeconds", Value: strconv.Itoa(ler.LeaseDurationSeconds),
			Rule: "from 1 to 31536000: client-go has leases in whole seconds, so LeaseDuration must be at least 1s",
		}
	}
	value, err := json.Marshal(resourcelock.LeaderElectionRecordToLeaseSpec(&ler))
	if err != nil {
		return fmt.Errorf("clientgo: %s %q: %w", verb, l.name, err)
	}
	if len(value) > maxRecord {
		return &noonlock.ConfigError{Package: "clientgo", Field: "LeaderElectionRecord", Value: strconv.Itoa(len(value)) + " bytes", Rule: "at most 65536 bytes as JSON"}
	}
	l.check()
	t0 := l.elapsed()
	version, err := l.record.Put(ctx, s.version, value, time.Duration(ler.LeaseDurationSeconds)*time.Second+retain)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.last = sight{version: version, own: true}
		if ler.HolderIdentity != "" {
			l.ended, l.until = nil, t0+validFor(ler.LeaseDurationSeconds)
		}
		return nil
	case errors.Is(err, cas.ErrConflict):
		l.end(lockcore.ErrLeaseLost)
		return apierrors.NewConflict(resource, l.name, err)
	case wire.MayBeApplied(err):
		l.last = sight{version: version, own: s.own}
	}
	return fmt.Errorf("clientgo: %s %q: %w", verb, l.name, err)
}

// RecordEvent passes an event to Config.EventRecorder, prefixed with the identity.
func (l *Lock) RecordEvent(what string) {
	if l.recorder == nil {
		return
	}
	subject := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{Kind: "Lease", APIVersion: coordinationv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: l.name},
	}
	l.recorder.Eventf(subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.identity, what)
}

// Identity returns Config.Identity or its default.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name of the lock for the elector's logs.
func (l *Lock) Describe() string { return "redis/" + l.name }
