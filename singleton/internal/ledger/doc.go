// Package ledger is the Redis side of jobs: which ticks have run, on which replica, and how they ended. Only package
// singleton and the packages below it use it.
//
// While the server keeps its data, it guarantees:
//
//   - A tick that has ended or was skipped is never claimed again, unless Rerun opens it.
//   - At most one Claim of a tick has a valid lease.
//   - Each token is greater than every earlier one of the job.
//
// docs/ARCHITECTURE.md, "The ledger of a job", has the states of a tick. All times are the server's.
//
//	a claim is not answered       it is released in the background, and does not count as an attempt
//	a completion is not answered  it is repeated until ctx ends; it is accepted once
//	a holder dies                 its lease expires, and another replica claims the tick
//	a lease is lost               Complete is still accepted, unless another replica has
//	                              claimed the tick since: ErrSuperseded
//	the server loses its data     Open starts a ledger after the last tick of the caller's State,
//	                              and restores the newest pause or resume that it has
//	a message is lost             replicas claim the tick again when its lease should end, and read after State.Again
//	a newer version wrote it      every call fails with ErrNewerSchema
package ledger
