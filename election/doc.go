// Package election elects one of many replicas as the leader, on Redis. It uses the terms
// of client-go's leaderelection. Package partition spreads work over all replicas.
//
//	le, err := election.NewLeaderElector(client, "controller", election.Callbacks{
//		OnStartedLeading: func(ctx context.Context) { work(ctx) },
//		OnStoppedLeading: func() { log.Info("stopped leading") },
//		OnNewLeader:      func(identity string) { log.Info("new leader", "identity", identity) },
//	}, election.Config{})
//	err = le.Run(ctx)
//
// # Guarantees
//
// These hold while the server keeps its data and nobody changes the clock of its machine.
//
//   - At most one replica leads at a time.
//   - The context of OnStartedLeading is done, with a typed cause, before the server may let
//     another replica lead. IsLeader is false from then on, even if the process was frozen.
//   - When a leader stops by choice (Run's context, Resign, TransferTo), its lease is renewed
//     until OnStartedLeading has returned, and then released. The next candidate leads at
//     once, without polling.
//   - OnStoppedLeading is called once after each OnStartedLeading has returned, and at no
//     other time.
//   - Each term has a fencing token greater than the tokens of all earlier terms.
//   - Run campaigns again after a lost lease. An outage of the server does not end Run,
//     however long it is.
//
// # Not guaranteed
//
//   - Work that ignores its context does not stop. If two leaders at a time can do harm, the
//     resource must refuse a token smaller than the greatest one it has seen (lockcore.FromContext).
//   - If the server loses data, as in a failover to a replica that lagged, two replicas may
//     lead until the next renewal of the old leader. The new leader has the greater token.
//   - If DrainTimeout is set and the work overruns it, two replicas may work at a time.
//   - A candidate that does not receive messages loses its turn.
//   - On a Client of lockcore.NewQuorum, candidates have no order, so TransferTo and Candidates are
//     refused, as are requests of operators. After Resign, the elector campaigns again after
//     RetryPeriod. docs/SAFETY.md says what a reader of the record gets while servers are away.
//   - OnNewLeader may skip a leader whose term was short. The leader it reports may
//     already have stopped.
//
// # States
//
//	stopped ──Run──► campaigning ──granted──► leading
//	campaigning ──ctx──► stopped
//	leading ──ctx, Resign, TransferTo──► draining: ctx done, renewed until the work returns
//	leading, draining ──lost, expired, DrainTimeout──► overdue: ctx done, Check fails
//	leading ──OnStartedLeading returns──► a pause ──► campaigning, or stopped
//	leading ──Healthy fails──► draining; campaigning ──Healthy fails──► not queued until it passes
//	draining ──returned──► released, the next candidate leads ──► campaigning, or stopped
//	                       (after a pause if the term was shorter than RetryPeriod)
//	overdue  ──returned──► a pause ──► campaigning, or stopped
//
// An operator calls Resign and TransferTo of an Election, in any process, and the leader
// carries them out. Only Run changes the state, on its caller's goroutine, which also runs
// OnStartedLeading. A request that is lost, late or repeated has no second effect. Messages
// only trigger a check at the server.
//
// # Timing
//
//	renewal          Every RetryPeriod (2 s). A failed renewal is retried after RetryPeriod, or
//	                 sooner: after half of the time left until RenewDeadline.
//	end of leading   RenewDeadline (10 s) after the last answered renewal, counted from
//	                 before its request was sent.
//	next leader      LeaseDuration (15 s) after that renewal, counted by the server.
//	time to stop     LeaseDuration − RenewDeadline = 5 s, less 1 % of LeaseDuration + 2 ms for
//	                 clocks that run at different rates.
//	handover         The next leader starts a few round trips after the work has returned.
//	dead leader      The next replica leads within LeaseDuration and a round trip.
//	outage           An outage of up to RenewDeadline - RetryPeriod - 0.1 s (7.9 s) does not
//	                 end leadership. The old connections need not work after the outage, if
//	                 new connections can be made.
//	candidate        One check per 1.1 LeaseDurations, in case a message was lost.
//	Client           One subscription, which is pinged every 10 s.
//
// # Bounds
//
// If the server does not answer, a call returns an error within this time, which includes dialing. Run returns
// nil. A call other than Run returns earlier if ctx ends.
//
//	2/3 LeaseDuration, at most 6 s    LeaderElector.TransferTo
//	LeaseDuration                     LeaderElector.Resign
//	6 s                               Election.Record
//	6.7 s                             Election.Candidates, Elections
//	12 s                              Election.Resign, Election.Terms
//	18.7 s                            Election.TransferTo
//	until ctx ends + ShutdownTimeout  LeaderElector.Run
//	0 s                               LeaderElector.Check, LeaderElector.Ready, Election.Watch
//
// Work that does not return when its context is done delays Run, and Resign and TransferTo of a LeaderElector.
//
// # Failures
//
//	the leader is killed          See "dead leader". Its record stays until it expires.
//	it is paused beyond its lease IsLeader, ctx.Err, Check and Resign report the end at their
//	                              first use. Done channels close when timers run.
//	its network fails             ctx is done with lockcore.ErrLeaseExpired.
//	its lock is removed           ctx is done with lockcore.ErrLeaseLost.
//	the work does not stop        Another replica leads after LeaseDuration. Check fails, Run
//	                              waits, and only fencing tokens distinguish the two leaders.
//	the work ignores Resign       Its lease is renewed and nobody else leads. Check fails
//	                              LeaseDuration later, or DrainTimeout ends the lease.
//	it resigns or returns         After each short term, and each early return, the elector
//	again and again               pauses, from RetryPeriod up to LeaseDuration. Others lead meanwhile.
//	OnStoppedLeading hangs        Other replicas lead. This one does not campaign, and Check
//	                              fails LeaseDuration later.
//	OnNewLeader hangs             It gets no further calls. Run still returns.
//	Healthy fails or hangs        The replica resigns or leaves the queue within two RetryPeriods.
//	                              Ready fails. The replica campaigns when Healthy passes. If
//	                              Healthy fails everywhere, nobody leads.
//	OnStartedLeading returns      The lease is released, and the next candidate leads at once.
//	a callback or Healthy panics  The lease is released. The panic or Goexit continues in
//	                              Run's caller.
//	a grant's message is lost     The candidate finds the grant at its next check.
//	the message of a new leader   The record is read when the subscription is back, or after
//	is lost                       66 LeaseDurations.
//	the record is deleted         The next renewal writes it again. An operator's request is lost.
//	the message about a request   The leader finds the request at its next renewal. If it dies
//	to resign is lost             before that, later leaders do not resign.
//	the record cannot be written  A candidate that finds this at its start does not campaign. Another candidate
//	                              leads, and logs this once. LeaderRecord.Granted names that candidate.
//	a candidate is frozen when    The record does not name it. The next candidate leads after 1.012 s.
//	the lock is granted to it
//	two replicas, one identity    They are two candidates, because each lease has its own secret.
//	the server is unavailable     Leaders stop in time. When it is back, all replicas campaign
//	                              again, in the same order if the server kept the queue.
//	the Client is closed          The lease ends and is released at once, so another replica may
//	                              lead before the work has returned. Then Run returns
//	                              lockcore.ErrClosed.
//
// # The record
//
// HGETALL noonlock:{election/NAME}:leader shows the leader. LeaderRecord documents its fields. The record is for
// information only; the lock decides. The record names the leader about one round trip after the work has begun.
//
// # Rights
//
// docs/SECURITY.md lists the rights (ACL) that elections need, and docs/METRICS.md their metrics.
package election
