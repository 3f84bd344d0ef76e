// Package election elects one of many replicas as the leader, on Redis. It uses the terms
// of client-go's leaderelection.
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
//     lead until the first one's next renewal. The second one has the greater token.
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
//	stopped ──Run──► campaigning ──granted, term recorded──► leading
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
//	                 end leadership. The old connections need not work after it, if new ones
//	                 can be made.
//	candidate        One check per 1.1 LeaseDurations, in case a message was lost.
//	Client           One subscription, which is pinged after 10 s of silence. While a
//	                 candidate queues, the ping comes after 60 times the shortest
//	                 LeaseDuration, if that is longer. TCP probes a silent connection every
//	                 10 s.
//
// # Bounds
//
// If the server does not answer, a call returns an error within this time, which includes dialing. Run returns
// nil. A call other than Run returns earlier if ctx ends.
//
//	2/3 LeaseDuration, at most 6 s    LeaderElector.TransferTo
//	LeaseDuration                     LeaderElector.Resign
//	6 s                               Election.Record, Election.Partitions
//	6.7 s                             Election.Candidates, Elections, PartitionSets
//	12 s                              Election.Resign, Election.Terms
//	18.7 s                            Election.TransferTo
//	until ctx ends + ShutdownTimeout  LeaderElector.Run, Partitions.Run
//	0 s                               LeaderElector.Check, LeaderElector.Ready, Election.Watch,
//	                                  Partitions.Check, Partitions.Ready
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
//	                              Ready fails. It campaigns when Healthy passes. If it fails
//	                              everywhere, nobody leads.
//	OnStartedLeading returns      The lease is released, and the next candidate leads at once.
//	a callback or Healthy panics  The lease is released. The panic or Goexit continues in
//	                              Run's caller.
//	a grant's message is lost     The candidate finds the grant at its next check.
//	the message of a new leader   The record is read when the subscription is back, or after
//	is lost                       66 LeaseDurations.
//	the record is deleted         The next renewal writes it again. An operator's request is lost.
//	the message about a request   The leader finds the request at its next renewal. If it dies
//	to resign is lost             before that, later leaders do not resign.
//	the record cannot be written  The campaign fails and the lock is released. A renewal extends the
//	                              lock all the same.
//	two replicas, one identity    They are two candidates, because each lease has its own secret.
//	the server is unavailable     Leaders stop in time. When it is back, all replicas campaign
//	                              again, in the same order if it kept the queue.
//	the Client is closed          The lease ends and is released at once, so another replica may
//	                              lead before the work has returned. Then Run returns
//	                              lockcore.ErrClosed.
//
// # Partitions
//
// NewPartitions shares n partitions among the replicas that live. Each replica settles at ⌊n/live⌋ to ⌈n/live⌉
// of them. One lease covers all partitions of a replica, so its renewals cost the same for any n.
//
//   - At most one replica leads a partition at a time, under the conditions of the guarantees above. The token of a
//     partition grows with each leader.
//   - A partition moves in this order: its context is done, its work returns, its replica reports that at once,
//     and another replica leads it, a few round trips later. Work that hangs delays its own partition only.
//   - No partition moves that the balance does not need. A restart of a replica that stops cleanly moves at most
//     2⌈n/live⌉ partitions. If many replicas start at the same time, the first ones give most of theirs back.
//   - The partitions of a replica that died are led by others within LeaseDuration and 0.5 s.
//   - n is stored while a replica lives. Another n is refused until all replicas have stopped.
//
// Not guaranteed: that a replica leads the same partitions again after a restart, and an order in time between
// partitions. If the server loses the key of a set, or what has changed last, as in a failover to a replica that
// lagged, the replicas notice that at their next renewal: each stops what the server does not say that it leads. Two
// may lead a partition until then, the second one with the greater token, unless Config.LockDelay of the Client
// prevents it. The partitions of a replica that has left may have no leader until its lease ends, if the loss
// undid that.
//
// # The record
//
// HGETALL noonlock:{election/NAME}:leader shows the leader. LeaderRecord documents its
// fields. The record is for information only; the lock decides.
//
// # Rights
//
// docs/SECURITY.md lists the rights (ACL) that elections and partitions need.
//
// # Metrics
//
//	leader_election_master_status{name}               1 while this process leads, else 0
//	noonlock_election_transitions_total{name,event}   leaderships gained, released, lost
//	noonlock_election_time_to_lead_seconds{name}      from campaigning to leading
//	noonlock_election_drain_overruns_total{name}      times that DrainTimeout was overrun
//	noonlock_election_interventions_total{name,action}  requests of operators: resign, transfer
//	noonlock_partitions_led{name}                     partitions that this process leads
//	noonlock_partitions_total{name,event}             partitions gained, released, lost
package election
