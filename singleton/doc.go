// Package singleton runs work on one of many equal replicas: jobs on a schedule ([Runner]), and tasks
// that one replica does at start-up while the others wait ([Runner.Once]).
//
//	r, err := singleton.NewRunner(client, singleton.Config{})
//	err = r.Add("lottery", "0 12 * * *", draw, singleton.JobConfig{TimeZone: shanghai})
//	err = r.Run(ctx) // on every replica
//
// A tick is an instant of a job's schedule. A schedule is a function of absolute time, so
// all replicas name the same ticks. When a tick is due by the server's clock, the
// replicas try to claim it in the job's ledger on Redis. The rest of this page is about
// the Runner.
//
// # Guarantees
//
// These hold while the server keeps its data.
//
//   - A tick never runs before it is due on the server's clock. After the end of a run
//     was recorded, its tick never runs again, even if a replica is late, frozen, or has a
//     wrong clock. Only Job.Rerun can run a tick again, and it refuses a tick that succeeded.
//   - At most one attempt at a tick has a valid lease. Its fencing token is greater
//     than all tokens that other replicas got for this job before.
//   - Each tick is accounted for once: it is recorded with its outcome, or as skipped with
//     the reason. A rerun has an entry of its own.
//   - If the holder of a tick dies, another replica runs the tick, up to MaxAttempts. If no
//     attempt is left, as with MaxAttempts 1, the tick is recorded as unknown.
//
// # Not guaranteed
//
//   - Work does not happen exactly once. A holder may die after its work took effect and
//     before the run is recorded. It may also have lost its lease without noticing yet. At
//     most one completion of a tick is accepted. Effects happen exactly once if they commit
//     in one transaction with a marker for (job, tick), as package sqlonce does, or if the
//     receiver uses Run.Key as an idempotency key.
//   - If work ignores its context and uses neither a marker nor a key, only a token
//     check at the resource stops it. Tokens follow the order of claims. Where ticks
//     may overlap, compare tokens within one tick only: see Run.Overlap.
//   - The outcome "failed" means that each attempt returned an error, and not that the work had no
//     effect. The outcome is "unknown" if no attempt succeeded and one of them died, could not record its
//     success, or returned ErrUnknownOutcome.
//   - Ticks that are due during an outage of the server run later, as far as CatchUp and
//     StartingDeadline allow.
//   - The ledger does not survive the loss of the server's data: a failover to a replica that
//     lagged, a flush, a restart without persistence. The replicas write back what they still
//     know, so ticks are not forgotten and rarely run twice. The token still grows, unless the
//     server's clock is also set back. The history is lost.
//   - A resource may refuse the token of a valid run. This happens if the server's clock was
//     once ahead, and the server has since lost its token counter. docs/OPERATIONS.md says
//     how to set the counter.
//
// # Timing
//
// With the defaults, TTL 10 s:
//
//	start           At most a few ms after the tick: one timer and one round trip. Never
//	                early.
//	dead holder     Its lease ends at most one TTL after its last renewal. Another replica
//	                then takes over within a round trip.
//	shutdown        If the work does not finish within Drain, its context ends. When it has
//	                returned, the tick is handed over in one round trip.
//	outage          An outage of up to 0.62 TTL does not end the lease of a run, as for any
//	                lease of lockcore, with the same exceptions.
//	cost of a tick  One claim per replica, and one completion.
//	between ticks   One check every 30 s of each replica, so a lost message delays nothing for
//	                longer. If no run is open, each of n replicas checks after 30 s to
//	                n × 10 s, at most 2 min: one of them does so every 10 s.
//	deploy          The newer definition takes over when one of its replicas has run for
//	                5 s, also after all replicas were stopped. If the replicas of the newer
//	                one stop, the older one takes over at once. If they die, it takes up to
//	                20 s, or during a run at most the TTL and 5 s.
//
// # Bounds
//
// If the server does not answer, a call returns an error within this time, which includes dialing. A call other
// than Run and Once returns earlier if ctx ends. Work that does not return when its context is done delays them.
//
//	6 s                               Job.Status, Job.Runs, Job.Actions, Job.Pause, Job.Resume,
//	                                  Job.Trigger, Job.TriggerAt, Job.Cancel,
//	                                  Job.CancelAt, Job.Forget
//	6.7 s                             Jobs
//	12 s                              Job.Rerun, Job.Result
//	until ctx ends + ShutdownTimeout  Runner.Run, Runner.Once
//	0 s                               Job.Watch, Runner.Add, Runner.Update, Runner.Remove,
//	                                  Runner.Check, Runner.Ready
//
// # Failures
//
//	two replicas claim a tick    One claim is granted. The others wait for its end.
//	a claim's reply is lost      The claim is sent again under the same id and granted once. If
//	                             it is abandoned, it does not count as an attempt.
//	a completion's reply is lost It is sent again and recorded once.
//	the holder is paused         Its context is done at its first use after the pause. Its
//	                             completion is refused if another attempt has ended.
//	the work fails, panics, or   The run is released, and any replica makes the next attempt after
//	exceeds its Timeout          Retry, then after twice that. After MaxAttempts, the tick is
//	                             recorded as failed.
//	the lease is lost            The context is done with the cause. Another replica may claim
//	                             the tick.
//	the run cannot be recorded   Recording is retried. If the lease ends first, another replica
//	                             runs the tick again. If its attempts fail, the tick is recorded
//	                             as unknown, because the work has succeeded once.
//	the outcome is unknown       The run is retried like a failure, and recorded as unknown.
//	a run is canceled            Its context ends at once, or at the next renewal if the message is
//	                             lost. It is recorded and not retried.
//	no replica was running       The newest missed tick runs (CatchUp). The others are recorded
//	                             as skipped in one entry. Ticks due in a pause or during a run
//	                             have entries of their own.
//	a run exceeds its interval   The next tick waits. Of several, the newest one runs.
//	all slots are taken          The run waits and claims nothing, so another replica with a free slot
//	                             runs the tick. See Config.MaxConcurrentRuns.
//	daylight saving time         See schedule.Parse.
//	a replica's clock is wrong   A metric shows it. Ticks follow the server's clock.
//	the server's clock is set    Forward: ticks come early by the difference. Back: nothing runs
//	                             until the clock has caught up. No tick runs twice.
//	a schedule is changed        The new ticks begin when the new definition takes over: see
//	                             JobConfig.Revision.
//	a job leaves the code, or    Other replicas continue with it. Without them, its ledger expires
//	is removed from all Runners  after 30 days or more, or is removed by Job.Forget.
//
// # Keys and rights
//
// The keys of a job's ledger begin with the Client's Prefix and "{job/NAME}". A ledger is
// kept while replicas run the job, then for at least 30 days plus twice the job's interval, or
// for a year if it has no schedule, and without limit while the job is paused. The ledger of Once has the name
// "job/once/NAME".
//
// docs/SECURITY.md lists the rights (ACL) that jobs need. Without subscribe or publish, replicas notice
// changes only when they check. Any other missing right is an error that is logged or returned. No
// tick runs twice because of it.
package singleton
