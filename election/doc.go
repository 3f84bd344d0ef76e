// Package election elects one of many replicas as the leader, over Redis. Its
// vocabulary is that of client-go's leaderelection; its promises go further.
//
//	le, err := election.NewLeaderElector(client, "controller", election.Callbacks{
//		OnStartedLeading: func(ctx context.Context) { work(ctx) },
//		OnStoppedLeading: func() { log.Info("stopped leading") },
//		OnNewLeader:      func(identity string) { log.Info("new leader", "is", identity) },
//	}, election.Config{})
//	err = le.Run(ctx)
//
// # What is guaranteed
//
// While the server keeps its data and its clock is not set, at most one replica
// leads at a time. The context of OnStartedLeading is done, with a typed cause,
// before the server may let another lead, and IsLeader refuses at first use even
// if the process was frozen meanwhile. On a stop by choice (Run's context,
// Resign, TransferTo) the lead is renewed until OnStartedLeading has returned,
// then given up, then OnStoppedLeading is called, once, and only if
// OnStartedLeading was; the next candidate leads at once, by push. Every term has
// a fencing token greater than that of every earlier one. Run stands again after
// a loss, and an outage of the server of any length does not end it.
//
// # What is not guaranteed
//
// That work which does not look at its context has stopped when another leads: a
// resource that must not be changed by two at once has to refuse a token smaller
// than one it has seen (TermFrom). That there is one leader through a loss of the
// server's data, as in a failover to a replica that lagged: two may lead until
// the first one's next renewal; the second one's token is greater. That there is
// one leader if DrainTimeout is set and the work overruns it. That a candidate
// that cannot be reached keeps its turn. That OnNewLeader hears of a leader that
// was succeeded while the message was on its way, or that who it named still
// leads.
//
// # The states of an elector
//
//	stopped ──Run──► in line ──granted, term recorded──► leading
//	in line ──ctx──► stopped
//	leading ──ctx, Resign, TransferTo──► draining: ctx done, renewed until the work returns
//	leading, draining ──lost, expired, DrainTimeout──► overdue: ctx done, Check fails
//	draining ──returned──► released, the next in line leads ──► in line, or stopped
//	                       (after a pause if the term was shorter than RetryPeriod)
//	overdue  ──returned──► a pause ──► in line, or stopped
//
// Only Run moves an elector, on its caller's goroutine, which also runs
// OnStartedLeading: neither candidate nor leader costs another one. A request
// that is lost, late or repeated changes nothing more than once; messages only
// make somebody look.
//
// # The arithmetic
//
//	renewal          every RetryPeriod (2 s), and after one that failed in RetryPeriod
//	                 or half of what is left of RenewDeadline, whichever is less
//	leading ends     RenewDeadline (10 s) after the last renewal that was answered,
//	                 counted from before its request was sent
//	others may lead  LeaseDuration (15 s) after it, counted by the server
//	what is between  5 s, less 1 % of LeaseDuration + 2 ms for clocks that run at
//	                 different rates, in which the work has to stop
//	hand-over        a few round trips after the work has returned
//	a dead leader    is succeeded within LeaseDuration and a round trip
//	an outage        of up to RenewDeadline - RetryPeriod, less a tenth of a second (7.9 s),
//	                 goes unnoticed
//	a candidate      asks once per 1.1 LeaseDurations, and does not poll
//	a stop           takes ShutdownTimeout (10 s) at most, if the work returns when
//	                 its context is done, whether or not the server answers
//	a Client         pings its one subscription after 10 s of silence, and while it
//	                 stands in line after 60 LeaseDurations, the shortest, if that is
//	                 more; TCP probes a silent connection every 10 s
//
// # What happens when
//
//	the leader is killed          as above; its record grows old
//	it is paused beyond its lease IsLeader, ctx.Err, Check, Resign refuse at first
//	                              use; channels follow when timers run
//	it is cut off                 ctx is done with lockcore.ErrLeaseExpired
//	its lock is taken away        ctx is done with lockcore.ErrLeaseLost
//	the work does not stop        another leads after LeaseDuration; Check fails; Run
//	                              waits; the token tells the two apart
//	it ignores Resign             it is renewed, and nobody else leads; Check fails
//	                              LeaseDuration later, or DrainTimeout ends it
//	it resigns at once, for ever  a pause after each such term, from RetryPeriod to
//	                              LeaseDuration
//	OnStoppedLeading hangs        others lead; this replica does not stand again, and
//	                              Check fails LeaseDuration later
//	OnNewLeader hangs             it hears of no other leader; Run returns all the same
//	OnStartedLeading returns      nothing: the lead goes on until ctx is done
//	a callback panics or exits    the lead is given up, and the panic or Goexit goes
//	                              on to Run's caller
//	a grant's message is lost     the candidate looks once per 1.1 LeaseDurations
//	news of a leader is lost      it is read when the subscription is back, or
//	                              after 66 LeaseDurations
//	the record is deleted         it is written again at the next renewal
//	two replicas of one identity  are two: leads are told apart by secrets
//	the server is away            leaders stop in time; all stand again when it is
//	                              back, with the places they had if it kept them
//	the Client is closed          Run returns lockcore.ErrClosed
//
// # The record
//
// HGETALL noonlock:{election/NAME}:leader shows who leads: see
// LeaderRecord for its fields. It informs; the lock decides.
//
// # Rights
//
// A user with ACLs needs, within ~noonlock:* and the channels (resetchannels)
// &noonlock:ch:* and &noonlock:leader:*: evalsha, eval, subscribe, unsubscribe, ping, publish; and for
// what the scripts do: exists, get, set, del, pexpire, pttl, time, zadd,
// zrange, zrem, zscore, hset, hget, hdel, hmget, hgetall.
//
// # Metrics
//
//	leader_election_master_status{name}               1 while this process leads, else 0
//	noonlock_election_transitions_total{name,event}   leads gained, released, lost
//	noonlock_election_time_to_lead_seconds{name}      from standing in line to leading
//	noonlock_election_drain_overruns_total{name}      times that DrainTimeout was overrun
package election
