// Package clientgo stores the record of client-go's leader election in Redis. It implements resourcelock.Interface
// for client-go's LeaderElector and for software that uses it, such as controller-runtime's manager.
//
//	lock, err := clientgo.NewLock(client, "kube-system/controller", clientgo.Config{})
//
//	leaderelection.LeaderElectionConfig{Lock: lock, …}                       // client-go
//	ctrl.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock} // controller-runtime
//
// Use it for programs that already have client-go's elector. New programs should use noonlock's
// package election: its candidates are notified instead of polling every few seconds, leaders
// have fencing tokens, and a stop waits for the work.
//
// # What is guaranteed
//
// Create and Update are compare-and-set operations on the record that this Lock has read or written last. Of several
// writes after the same read, one succeeds and all others are Conflicts, even if requests or replies are lost, late
// or repeated. If the reply to a write was lost, the next write recognizes it as this Lock's own. Every write changes
// the raw bytes that Get returns; client-go uses them to detect that a leader is alive.
//
// If another candidate uses the same identity, Get does not report that candidate's record as this Lock's own. A Lock
// releases only its own record. The record is kept for a week after its lease has expired, and then deleted. In this
// time LeaderTransitions continues to count and the last leader can be read.
//
// # What is not guaranteed
//
// This package guarantees nothing that client-go's elector does not guarantee. That elector measures leases on the
// candidates' clocks and does not wait for OnStartedLeading to return. In particular:
//
//   - Two candidates can lead at the same time if RetryPeriod and RenewDeadline together are
//     longer than LeaseDuration, or if a process is paused beyond its lease. There is no
//     fencing token with which a resource could refuse the older leader. LeaderTransitions is
//     not a fencing token: it restarts when the record was lost.
//   - The context of OnStartedLeading is not done as soon as the leadership is lost. It lasts
//     until the elector has failed to renew for RenewDeadline, even after a pause of the
//     process beyond its lease. With ReleaseOnCancel it lasts up to six RequestTimeouts
//     (2.4 s) longer while Redis does not answer. Lock.Bind returns a context that ends in
//     time.
//   - The contexts that controller-runtime passes to controllers and Runnables do not end in
//     time either: controller-runtime creates them, and no lock can end them. Call Lock.Bind
//     in Reconcile and in Start. Caches, event handlers and third-party controllers continue
//     until the manager ends.
//   - A leader does not keep its leadership if Redis loses its data, for example in a failover
//     to a replica that lagged. The next candidate finds no record and leads immediately. The
//     old leader detects this at its next renewal. With lockcore.Config.LockDelay of at least
//     LeaseDuration, and at least 10 s, the candidate waits until the old leader has stopped.
//   - Two candidates that share one Lock count as one candidate, so both can lead. With
//     separate Locks they are two candidates, even if they have the same identity.
//   - A process that restarts under the identity of a dead process does not lead immediately,
//     as it would with a Lease: no candidate can know that the other process is dead. It
//     waits for the lease like all others.
//   - Coordinated leader election (LeaderElectionConfig.Coordinated) is not supported: it
//     needs controllers in the API server. Strategy and PreferredHolder are only stored.
//   - Labels are not supported, since there is no object to label.
//
// # The arithmetic
//
//	LeaseDuration   is in whole seconds, as client-go writes it. Less than a second is
//	                refused at every Create and Update, and a fraction is cut off
//	a dead leader   is succeeded LeaseDuration to LeaseDuration + 4.4 RetryPeriods
//	                after its last renewal, since candidates poll every 1 to 2.2
//	                RetryPeriods
//	a release       is detected within 2.2 RetryPeriods
//	a request       is retried after RequestTimeout (400 ms), three times in total;
//	                the elector's RenewDeadline also ends it
//	Bind's context  is done LeaseDuration less 1 % and 2 ms (14.848 s) after the last
//	                successful write was sent
//	leading ends    RetryPeriod + RenewDeadline (12 s) after the last renewal, and up
//	                to 6 RequestTimeouts (2.4 s) later with ReleaseOnCancel; others
//	                may lead LeaseDuration (15 s) after the last renewal
//	the record      is deleted LeaseDuration + a week after its last write
//
// # Failures
//
//	the leader is killed           another candidate leads after the lease, as above
//	the leader is cut off, or      its elector ends after RenewDeadline; as always with
//	Redis is down                  client-go, it does not campaign again by itself
//	a reply is lost                the request is retried, and is not a Conflict
//	all replies are lost           an error that is lockcore.ErrUnknown; the next
//	                               Update accepts either outcome
//	the process is paused          the context of Bind is done at the first check; the
//	beyond its lease               elector's after it has failed for RenewDeadline
//	the leadership ends during     the record is released nevertheless
//	a renewal
//	another candidate has          Conflict; the elector ends after RenewDeadline and
//	written the record             releases nothing (lockcore.ErrNotHeld)
//	the record was deleted         Conflict, then NotFound; the first candidate creates it
//	a newer release wrote it       ErrNewerSchema; nothing is overwritten
//	the key has another type       lockcore.ErrWrongKind; nothing is overwritten
//
// # The record
//
// The record is the version of its last write, followed by the spec of a Lease as JSON:
//
//	$ redis-cli GET 'noonlock:{clientgo/kube-system/controller}:record'
//	nr1 M47GAHQB3WWHZVNWTJMDWY4Q67.4 {"holderIdentity":"two","leaseDurationSeconds":15,…}
//
// # Permissions
//
// A user with ACLs needs the permissions ~noonlock:{clientgo/* -@all +evalsha +eval +get +set.
// docs/SECURITY.md lists the permissions for connections.
package clientgo
