// Package ledger is the Redis side of jobs: which ticks have been run, by which replica,
// and how that ended. Only package singleton uses it.
//
// While the server keeps its data, it guarantees:
//
//   - A tick that has ended or was skipped is never claimed again, unless Rerun opens it.
//   - At most one Claim of a tick has a valid lease.
//   - Each token is greater than every earlier one of the job.
//
// If the lease of a Claim was lost, its work may still run or may have had an effect. Only a
// token check at the resource protects against that.
//
// # States of a tick
//
//	                                      ┌─┐ Retry: attempt + 1, the same token
//	(no record, tick > last) ──Claim──► open, held ──Complete──► succeeded, failed, unknown
//	                                      │   ▲
//	                        holder dies,  ▼   │ Claim: attempt + 1, new token
//	                        or Abandon    open, not held ──attempts used up──► unknown
//	(no record, tick > last) ──Skip─────► skipped
//	failed, unknown, skipped ──Rerun────► open, not held
//
// `last` is the newest tick that was claimed or skipped. A claim contains the `last` that its
// replica knows, and records the due ticks between the two as skipped. If the ledger has
// another `last`, the claim is refused. So a tick at or before `last` that is not open has ended.
// All times are the server's.
//
// # What happens when
//
//	a claim is not answered       it is released in the background, and does not count as an attempt
//	a completion is not answered  it is repeated until ctx ends; it is accepted once
//	a holder dies                 its lease expires, and another replica claims the tick
//	a lease is lost               Complete is still accepted, unless another replica has
//	                              claimed the tick since: ErrSuperseded
//	the server loses its data     Open starts a ledger after the last tick of the caller's State,
//	                              and restores the newest pause or resume that it has
//	a message is lost             replicas claim the tick again when its lease should end, and check every 30 s
//	a newer version wrote it      every call fails with ErrNewerSchema
package ledger
