package singleton

import (
	"context"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// A Daemon is a handle on a daemon, in any process, whether or not it runs the daemon. It has no
// state and is safe for concurrent use.
type Daemon struct {
	client *lockcore.Client
	name   string
	lock   *lock.Name
}

// daemonNames keeps daemons apart from jobs.
const daemonNames = "daemon/"

// NewDaemon returns a handle on the daemon of that name. It sends no request. The error is a
// *noonlock.ConfigError.
func NewDaemon(client *lockcore.Client, name string) (*Daemon, error) {
	n, err := daemonLock(client, name, nil)
	if err != nil {
		return nil, err
	}
	return &Daemon{client, name, n}, nil
}

// daemonLock returns the lock of a daemon. Its runners have leases.
func daemonLock(client *lockcore.Client, name string, lease *lock.LeaseConfig) (*lock.Name, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	if err := checkName(name, daemonNames); err != nil {
		return nil, err
	}
	n, err := lock.Of(client).Name(lock.JobNames+daemonNames+name, lease)
	if err != nil {
		return nil, translate(err, "DaemonConfig", "daemon")
	}
	return n, nil
}

// daemonNews returns the channel of hints that a daemon has begun or stopped. Everybody who may use
// locks has the right to it.
func daemonNews(n *lock.Name) string { return n.Channel("ch", n.Name()) }

// Inspect returns the replica that runs the daemon, as the holder, and those that wait, next one
// first. The Name is that of the daemon. Otherwise Inspect is like lockcore's Client.Inspect.
func (d *Daemon) Inspect(ctx context.Context) (lockcore.Inspection, error) {
	seen, err := d.client.Inspect(ctx, d.lock.Name())
	seen.Name = d.name
	return seen, input.Operation("singleton", "inspect daemon", d.name, err)
}

// Watch returns a channel that has a value when the daemon may have begun or stopped on a replica,
// and when messages may have been missed. If the receiver is slow, several changes cause
// one value. The channel is closed when ctx ends or the Client is closed.
//
// Messages announce changes, and can be lost. The death of a replica that runs the daemon causes no
// value until another replica takes over.
func (d *Daemon) Watch(ctx context.Context) <-chan struct{} {
	return d.lock.Hints(ctx, daemonNews(d.lock))
}
