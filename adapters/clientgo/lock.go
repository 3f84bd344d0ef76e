package clientgo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

var _ resourcelock.Interface = (*Lock)(nil)

// A Lock is a resourcelock.Interface for a record in Redis, for one elector. Its methods may be called from any
// goroutine. It stores the version that was read last, so electors must not share a Lock: both could lead.
type Lock struct {
	name     string
	identity string
	record   *cas.Record
	recorder resourcelock.EventRecorder

	leadership
	last revision // newest revision that was read or written; guarded by mu
}

// NewLock returns the lock of a name: 1 to 191 bytes of UTF-8 without control characters,
// spaces and braces, such as "namespace/name". All candidates of an election use the same
// name, each with its own Lock. NewLock sends nothing. An error is a *noonlock.ConfigError.
//
// The client must stay open while the lock is used. Closing the client does not release the lock.
func NewLock(client *lockcore.Client, name string, cfg Config) (*Lock, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	if rule := input.Fault(name, 200-len(cas.NamePrefix), true); rule != "" {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "name", Value: input.Quote(name), Rule: rule}
	}
	identity := cmp.Or(cfg.Identity, client.Identity())
	if rule := input.Fault(identity, 200, false); rule != "" {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "Config.Identity", Value: input.Quote(identity), Rule: rule}
	}
	timeout := cmp.Or(cfg.RequestTimeout, 400*time.Millisecond)
	if timeout < 10*time.Millisecond || timeout > time.Minute {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "Config.RequestTimeout", Value: cfg.RequestTimeout.String(), Rule: "0 (400ms) or from 10ms to 1m"}
	}
	record, err := cas.New(client, name, timeout)
	if err != nil {
		return nil, err
	}
	l := &Lock{name: name, identity: identity, record: record, recorder: cfg.EventRecorder}
	l.init(lock.Of(client).Elapsed)
	return l, nil
}

// A revision is a version of the record and its writer. It is zero if there is no record.
type revision struct {
	version cas.Version
	own     bool // written by this Lock
}

func (l *Lock) revision() revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// found records the revision now, which a Get has read. before is the last revision when the Get began: if a write
// has changed it during the Get, now may be older than the write, and found records nothing.
func (l *Lock) found(before, now revision) {
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
	before := l.revision()
	state, err := l.record.Get(ctx)
	if errors.Is(err, cas.ErrNone) {
		l.found(before, revision{})
		return nil, nil, apierrors.NewNotFound(resource, l.name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("clientgo: get %q: %w", l.name, err)
	}
	var spec coordinationv1.LeaseSpec
	if err := json.Unmarshal(state.Value, &spec); err != nil {
		return nil, nil, fmt.Errorf("clientgo: get %q: the record is not a Lease's spec: %w", l.name, err)
	}
	l.found(before, revision{version: state.Version, own: state.Own})
	ler := resourcelock.LeaseSpecToLeaderElectionRecord(&spec)
	if ler.HolderIdentity == l.identity && !state.Own {
		ler.HolderIdentity += namesake
	}
	return ler, fmt.Appendf(nil, "%s %s", state.Version, state.Value), nil
}

// namesake is appended to the identity of another candidate with the same identity.
const namesake = " (another candidate of this identity)"

var resource = schema.GroupResource{Group: "noonlock", Resource: "records"} // in the texts of NotFound and Conflict

// Create writes the first record. The error is a Conflict if there is a record, unless it is
// this Lock's own, from a Create whose outcome was unknown.
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	r := l.revision()
	if !r.version.Includes(cas.Version{}) {
		r = revision{}
	}
	return l.write(ctx, "create", r, ler)
}

// Update writes the record if this Lock has read or written its version last. Otherwise the
// error is a Conflict, even if the record was deleted. After an error that is
// lockcore.ErrUnknown, the next Update succeeds whether or not this one was applied.
//
// A record without a holder is a release. If the record is not this Lock's own, the error is lockcore.ErrNotHeld.
// This happens when an elector still acts as the leader after another one has taken over, and then releases the
// record that it has just read. The error is not a Conflict, after which client-go's elector would read and release
// again in a loop until RenewDeadline.
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	if ler.HolderIdentity == "" {
		l.mu.Lock()
		l.end(lockcore.ErrReleased) // before the write, since others may lead after it
		l.mu.Unlock()
	}
	r := l.revision()
	if r.version == (cas.Version{}) {
		return ErrNotRead
	}
	if ler.HolderIdentity == "" && !r.own {
		return fmt.Errorf("clientgo: release %q: %w", l.name, lockcore.ErrNotHeld)
	}
	return l.write(ctx, "update", r, ler)
}

func (l *Lock) write(ctx context.Context, verb string, r revision, ler resourcelock.LeaderElectionRecord) error {
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
	ttl := time.Duration(ler.LeaseDurationSeconds) * time.Second
	l.check()
	t0 := l.elapsed()
	version, err := l.record.Put(ctx, r.version, value, ttl+retain)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.last = revision{version: version, own: true}
		if ler.HolderIdentity != "" {
			l.ended, l.until = nil, t0+ttl-lease.Margin(ttl)
		}
		return nil
	case errors.Is(err, cas.ErrConflict):
		l.end(lockcore.ErrLeaseLost)
		return apierrors.NewConflict(resource, l.name, err)
	case wire.MayBeApplied(err):
		l.last = revision{version: version, own: r.own}
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

// Bind returns a context that is done when parent is done or when the leadership ends, whichever comes first. The
// leadership ends LeaseDuration, less a margin of 1 % and 2 ms, after the last successful write of the record was
// sent. Other candidates may lead only after that. The leadership ends earlier if another candidate has written the
// record, if the record was lost, and before a release is sent.
//
// The Err of the context reads the clock, so it is correct even if the process was paused and no timer has fired yet.
// In contrast, client-go's own context lasts until the elector has failed to renew for RenewDeadline. Contexts
// derived from the bound one do not read the clock; they end slightly later.
//
// The cause of the context (context.Cause) is lockcore.ErrLeaseExpired, lockcore.ErrLeaseLost or
// lockcore.ErrReleased, or lockcore.ErrNotHeld if this Lock has not written the record yet.
//
// Timers stop while a machine is suspended. The first request of the elector after a suspension
// corrects the timer of the context. If the leadership is over by then, the context is done at once. If
// that request renews the record, a new leadership begins.
//
// Call Bind in OnStartedLeading, and stop when the work is done. The end of the work does not stop the elector, which
// may renew the record again. So end the elector's own context with the work:
//
//	OnStartedLeading: func(lead context.Context) {
//		defer cancel() // cancels the context of LeaderElector.Run
//		ctx, stop := lock.Bind(lead)
//		defer stop()
//		work(ctx)
//	},
func (l *Lock) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	b := &boundContext{Context: inner, leadership: &l.leadership, cancel: cancel}
	now := l.elapsed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	if l.ended != nil {
		cancel(l.ended)
	} else {
		l.bound[b] = struct{}{}
		l.timer.Reset(l.until - now)
	}
	return b, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bound, b)
		cancel(context.Canceled)
	}
}

// Errors of this package, for errors.Is. A missing or changed record is reported as client-go
// expects it: apierrors.IsNotFound, apierrors.IsConflict. All other errors are lockcore's.
var (
	// ErrNewerSchema means that a newer release wrote the record with a schema that this
	// release does not support. Nothing was written.
	ErrNewerSchema = cas.ErrNewerSchema

	// ErrNotRead is returned by an Update before the first Get or Create, since there is no known version to replace.
	ErrNotRead = errors.New("clientgo: Update before the first read; call Get or Create first")
)
