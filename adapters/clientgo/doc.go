// Package clientgo keeps the record of client-go's leader election in Redis: a
// resourcelock.Interface for its LeaderElector, and for what is built on it, such
// as controller-runtime's manager.
//
//	lock, err := clientgo.NewLock(client, "kube-system/controller", clientgo.Config{})
//
//	leaderelection.LeaderElectionConfig{Lock: lock, …}                       // client-go
//	ctrl.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock} // controller-runtime
//
// It is for programs that have such an elector and shall keep it. Who is free to
// choose is better off with noonlock's election: candidates that are told rather
// than ask every few seconds, a fencing token, a stop that waits for the work.
//
// # What is guaranteed
//
// Create and Update are compare-and-set on what this Lock has read or written
// last: of writes that go by the same read one succeeds and all others are
// Conflicts, also if requests or replies are lost, late or repeated. A write whose
// reply was lost is found to be one's own by the next one. Every write changes the
// raw bytes that Get returns, by which client-go tells a living leader. Who finds
// its own identity in a record that another candidate wrote is not told that it
// leads, and nobody releases what another has written. The record stays for
// Config.Retain after its lease, and then nothing is left in Redis.
//
// # What is not guaranteed
//
// Anything that client-go's elector does not promise by itself, which counts
// leases on the candidates' clocks and does not wait for OnStartedLeading to
// return. In particular:
//
//   - That one leads at a time if RetryPeriod and RenewDeadline together are longer
//     than LeaseDuration, or a process is paused beyond its lease: there is no
//     fencing token by which a resource could refuse the older leader.
//     LeaderTransitions is none; it begins anew when the record was lost.
//   - That the context of OnStartedLeading is done when the lead is lost: it lasts until
//     the elector has tried in vain for RenewDeadline, also after a pause of the process
//     beyond its lease, and with ReleaseOnCancel up to six RequestTimeouts (2.4 s) longer
//     while Redis is silent. Lock.Bind makes a context that is done in time.
//   - That the contexts controller-runtime gives to controllers and Runnables are done in
//     time: it makes them itself, and no lock can end them. Call Lock.Bind in Reconcile
//     and in Start. Caches, event handlers and controllers of others go on until the
//     manager ends.
//   - That one leads through a loss of Redis's data, as in a failover to a replica
//     that lagged: the next candidate finds no record and leads at once, and the
//     old leader learns of it when it renews next.
//   - That two candidates of one identity never both lead if they share one Lock:
//     to a Lock they are one. With a Lock each they are two, as with any identities.
//   - That a process started anew under the identity of one that died leads at once,
//     as it would with a Lease: nobody knows that the other is dead. It waits for
//     the lease like all others.
//   - Coordinated leader election (LeaderElectionConfig.Coordinated): it needs
//     controllers in the API server. Strategy and PreferredHolder are only kept.
//   - Labels. There is nothing to be labelled.
//
// # The arithmetic
//
//	LeaseDuration   in whole seconds, as client-go writes it: below a second is
//	                refused at every Create and Update, and a fraction is cut off
//	a dead leader   is succeeded LeaseDuration to LeaseDuration + 4.4 RetryPeriods
//	                after its last renewal: candidates look every RetryPeriod to 2.2
//	a release       is noticed within 2.2 RetryPeriods
//	a request       is sent again after RequestTimeout (400 ms), three times in all;
//	                the elector's RenewDeadline ends it, too
//	Bind's context  is done LeaseDuration less 1 % and 2 ms (14.848 s) after the last
//	                successful write was sent
//	leading ends    RetryPeriod + RenewDeadline (12 s) after the last renewal, and up
//	                to 6 RequestTimeouts (2.4 s) later with ReleaseOnCancel; others
//	                may lead LeaseDuration (15 s) after it
//	the record      is gone LeaseDuration + Retain (a week) after its last write
//
// # What happens when
//
//	the leader is killed           as above
//	it is cut off, or Redis away   its elector ends after RenewDeadline; as client-go
//	                               has it, it does not stand again by itself
//	a reply is lost                the request is sent again, and is no Conflict
//	all replies are lost           an error that is lockcore.ErrUnknown; the next
//	                               Update counts on either outcome
//	the process is paused          the context of Bind is done at the first look; the
//	beyond its lease               elector's when it has failed for RenewDeadline
//	the lead ends amid a renewal   it is released all the same
//	another took the record        Conflict; the elector ends after RenewDeadline, and
//	                               releases nothing (lockcore.ErrNotHeld)
//	the record was deleted         Conflict, then NotFound; who comes first creates it
//	a newer release wrote it       lockcore.ErrNewerSchema; nothing is overwritten
//	the key is something else      lockcore.ErrWrongKind; likewise
//
// # The record
//
// It is the spec of a Lease as JSON, behind the version of its last write:
//
//	$ redis-cli GET 'noonlock:{clientgo/kube-system/controller}:record'
//	nr1 M47GAHQB3WWHZVNWTJMDWY4Q67.4 {"holderIdentity":"two","leaseDurationSeconds":15,…}
//
// # Rights
//
// A user with ACLs needs ~noonlock:{clientgo/* -@all +evalsha +eval +get +set.
package clientgo
