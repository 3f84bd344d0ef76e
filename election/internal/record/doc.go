// Package record is the Redis side of elections: a lock, and a record of its holder that
// everybody can read and watch. Only package election uses it.
//
// It guarantees that at most one Leadership of an election has a valid lease, as
// lockcore.Mutex does, and that nobody leads whose record could not be written. It does
// not guarantee that the record is right at every moment: it is written while the lock is
// the writer's, or still free after it, and grows old when a leader dies. The lock alone
// decides who leads.
//
// # States of a candidate
//
//	queued ──grant──► held ──leader_claim──► leads ──Resign──► vacated
//	                    │                      │
//	                    └──────lost, expired───┴──► not held
//
// The lock's renewals are leader_renew from the claim on. A renewal extends the lock
// first, then the record. Whatever happens to the record, it extends the lock.
//
// # What happens when
//
//	the claim is not answered     it is repeated until the lease ends; then the lock is
//	                              given back, and Campaign fails
//	the record cannot be written  Campaign fails and gives the lock back
//	the record is lost or old     the next renewal writes it anew
//	a newer version wrote it      a claim fails, a renewal leaves it alone
//	leader_vacate is lost         the record still names the leader that resigned; what
//	                              is Left of it is 0
//	a message is lost             watchers read the record when the subscription is made
//	                              anew, and at the latest after 66 TTLs
package record
