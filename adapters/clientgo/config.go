package clientgo

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock/lockcore"
)

// Config is how a Lock works. Its zero value is a working default.
type Config struct {
	// Identity tells this candidate from all others, as client-go demands it. Up to
	// 200 bytes without control characters. Default: the Client's, which is the
	// host name and a random suffix unless it was set.
	Identity string

	// Retain is how long the record stays after its lease is over, so that
	// LeaderTransitions count on and the last leader can be seen. Then it is gone,
	// and the next candidate finds none. From 1 minute to a year. Default a week.
	Retain time.Duration

	// RequestTimeout is how long one request may go unanswered before it is sent
	// again; a call gives up after three times that, or with its context. From
	// 10 ms to 1 minute. Default 400 ms. With ReleaseOnCancel, RetryPeriod +
	// RenewDeadline + 6 RequestTimeouts should be less than LeaseDuration, see the
	// package comment.
	RequestTimeout time.Duration

	// EventRecorder gets "<identity> became leader" and "<identity> stopped
	// leading". Default: nobody does.
	EventRecorder resourcelock.EventRecorder

	// EventObject is what those events are about, such as the Pod of this process.
	// Default: a Lease of the lock's name in the namespace "default", though there
	// is none.
	EventObject runtime.Object
}

const (
	// recordNames keeps the records apart from those that users write themselves.
	recordNames = "clientgo/"

	defaultRetain  = 7 * 24 * time.Hour
	defaultTimeout = 400 * time.Millisecond

	minRetain = time.Minute
	maxRetain = 365 * 24 * time.Hour
	maxLease  = 365 * 24 * 60 * 60 // s
)

// NewLock returns the lock of a name, 1 to 191 bytes of UTF-8 without control
// characters, spaces and braces, such as "namespace/name". All candidates of an
// election use the same name, each a Lock of its own. It sends nothing. The error
// is a *ConfigError.
//
// The client must be open for as long as the lock is used; closing it releases
// nothing.
func NewLock(client *lockcore.Client, name string, cfg Config) (*Lock, error) {
	if client == nil {
		return nil, &ConfigError{"client", "nil", "a *lockcore.Client"}
	}
	const rule = "1 to 191 bytes of UTF-8 without control characters, spaces and braces"
	if name == "" {
		return nil, &ConfigError{"name", `""`, rule}
	}
	retain := cmp.Or(cfg.Retain, defaultRetain)
	if retain < minRetain || retain > maxRetain || retain%time.Millisecond != 0 {
		return nil, &ConfigError{"Config.Retain", cfg.Retain.String(), "0 (168h) or whole milliseconds from 1m to 8760h"}
	}
	if cfg.EventObject != nil && cfg.EventRecorder == nil {
		return nil, &ConfigError{"Config.EventObject", fmt.Sprintf("a %T", cfg.EventObject), "nil where EventRecorder is, as there are no events"}
	}
	l := &Lock{
		name: name, identity: cmp.Or(cfg.Identity, client.Identity()), retain: retain,
		recorder: cfg.EventRecorder, subject: cfg.EventObject,
		hold: hold{elapsed: client.Elapsed, why: lockcore.ErrNotHeld},
	}
	// The elector shows and compares identities; lockcore knows what can be shown.
	if _, err := client.Mutex("identity", lockcore.LeaseConfig{Identity: l.identity}); err != nil {
		return nil, &ConfigError{"Config.Identity", brief(l.identity), "1 to 200 bytes of UTF-8 without control characters"}
	}
	var err error
	l.record, err = client.Record(recordNames+name, lockcore.RecordConfig{Timeout: cmp.Or(cfg.RequestTimeout, defaultTimeout)})
	var refused *lockcore.ConfigError
	switch {
	case errors.As(err, &refused) && refused.Field == "name":
		return nil, &ConfigError{"name", brief(name), rule}
	case errors.As(err, &refused):
		return nil, &ConfigError{"Config.RequestTimeout", refused.Value, "0 (400ms) or from 10ms to 1m"}
	case err != nil:
		return nil, err
	}
	if l.subject == nil {
		l.subject = &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{Kind: "Lease", APIVersion: coordinationv1.SchemeGroupVersion.String()},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		}
	}
	return l, nil
}

// brief quotes a value for an error without repeating all of a long one.
func brief(s string) string {
	if len(s) <= 60 {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:60]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}
