// Package record stores elections in Redis: a lock, and a record of its holder that any
// client can read and watch. Only package election uses it.
//
// On a quorum, each server has a copy of the record, see quorum.
//
// It guarantees that at most one Leadership of an election has a valid lease, as
// lockcore.Mutex does, and that a replica whose record could not be written does not lead.
// It does not guarantee that the record is always up to date. The record is written only
// while the writer holds the lock, or while the lock is still free after it. After the
// death of a leader, the record is out of date. The lock alone decides who leads.
//
// # States of a candidate
//
//	queued ──grant──► held ──leader_claim──► leads ──Resign──► vacated
//	                    │                      │
//	                    └──────lost, expired───┴──► not held
//
// After the claim, the script leader_renew renews the lock. It extends the lock first, then
// the record. A failure to write the record does not stop it from extending the lock.
//
// # Failures
//
//	the claim is not answered     it is repeated until the lease ends; then the lock is
//	                              released, and Campaign fails
//	the record cannot be written  Campaign fails and releases the lock
//	the record is lost or old     the next renewal writes it again
//	a newer version wrote it      a claim fails; a renewal does not change it
//	leader_resign is not answered the operator repeats it; the leader drains once
//	leader_vacate is lost         the record still names the leader that resigned; its Left
//	                              is not positive
//	a message is lost             watchers read the record when the subscription is
//	                              restored, and at the latest after 66 TTLs
package record
