// Package singleton runs what a fleet of equal replicas is to do once: jobs on a
// schedule (Runner), one copy of a long-lived function (Daemon), and work at
// start-up that one replica does while the others wait (Once).
//
//	r, err := singleton.NewRunner(client, singleton.Config{})
//	err = r.Add("lottery", "0 12 * * *", draw, singleton.JobConfig{TimeZone: shanghai})
//	err = r.Run(ctx) // on every replica
//
// A tick is an instant of a job's schedule. All replicas name the same instants,
// as a schedule is a function of absolute time, and claim them in the job's ledger
// on the Redis server, by the server's clock. What is below is about the Runner;
// Daemon and Once say for themselves what they promise.
//
// # What is guaranteed
//
// While the server keeps its data:
//
//   - A tick is never run before it is due on the server's clock, and never again
//     once a run of it was accepted as ended, whichever replica is late, stands
//     still, or has a wrong clock.
//   - At most one attempt at a tick has a valid lease, and each has a fencing token
//     greater than those of all earlier attempts of other replicas at the job.
//   - Every tick is accounted for, once: run and recorded with its outcome, or
//     recorded as skipped with the reason.
//   - A tick whose holder died is run again by another replica (AtLeastOnce), up to
//     MaxAttempts, or recorded as lost (AtMostOnce, or MaxAttempts 1).
//
// # What is not guaranteed
//
// That work happens exactly once. A holder may die after the effect of its work
// and before the record, and one that has lost its lease may not have noticed yet.
// At most one completion of a tick is accepted; the effects happen exactly once if
// they commit in one transaction with a marker for (job, tick), which is what
// package sqlonce does, or if whoever has the effect takes Run.Key as an
// idempotency key. (Tokens are in the order of claims: where ticks may overlap,
// they are to be compared within one tick, see Run.Overlap.) Work that does neither and does not look at its context is
// stopped by nothing but the token at the resource.
//
// That "failed" means without effect: it means that the work said so, at every
// attempt. Where a holder ended without a word, or could not record a success, or the
// work returned ErrUnknownOutcome, and no other succeeded, the tick is recorded as
// "unknown".
//
// That ticks are punctual while the server is away. They are late, by CatchUp and
// StartingDeadline.
//
// That the ledger survives the loss of the server's data, as in a failover to a
// replica that lagged, a flush, or a restart without persistence. What the
// replicas still know is then put right, as far as it goes: the ledger begins
// again after what they know to have ended, so ticks are not forgotten and rarely
// run twice; the token is greater than before in any case, unless the server's
// clock is set back as well. The history is lost.
//
// That a resource accepts the token of a run that is held. It refuses it if it has
// seen one of a clock that was ahead, and the server has lost its counter since. If
// the work's error says which token was seen (a *sqlonce.StaleTokenError, or any error
// with a method TokenSeen() uint64), the run gets a token above it for its next
// attempt, and later claims are above it too. That happens once for each run, and is
// logged as an error.
//
// # The arithmetic
//
// With the defaults, TTL 10 s:
//
//	start          at most a few ms after the tick: one timer, which may be a
//	               millisecond late, and one round trip; never early
//	a holder dies  its hold ends at most TTL after its last renewal, and all others
//	               know when: the tick is taken over within TTL + a round trip
//	a shutdown     hands the tick over in a round trip, after Drain at most if the
//	               work listens to its context
//	an outage      of the server of up to 2/3 TTL does not end a run's lease
//	each tick      costs a claim and a look for each replica, and a completion
//	between ticks  a look every 30 s, so that a lost message delays nothing longer
//	a deploy       the older definition is not used from the newer one's start; it
//	               is again, at once, when the newer one's last replica stops, or
//	               90 to 120 s after it died, and until one of the newer looks again
//
// # What happens when
//
//	two replicas claim a tick   one is granted it, the others wait for its end
//	a claim's answer is lost    it is asked again under the same name, and granted
//	                            once; given up, it counts as no attempt
//	a completion's is lost      likewise: recorded once
//	the holder is paused        its context is done at first use; the other's
//	                            completion stands, its own is refused
//	the work fails or panics,   again on the same replica, Retry later, then twice
//	or its time is over         that, until MaxAttempts; then recorded as failed
//	the lease is lost           the context is done with the cause; the tick is
//	                            another's
//	the record cannot be made   tried until it can; meanwhile the hold may end, and
//	                            another does the work again; if that fails after a
//	                            success, it is recorded as unknown
//	the work does not know how  as a failure, but in the end recorded as unknown
//	it ended
//	all replicas were away      the newest missed tick is run (CatchUp), the others
//	                            are skipped, in one entry; what came due in a pause
//	                            or in a run, before or after, in entries of its own
//	a run outlasts its interval the next one waits; of several the newest is run
//	the clocks go forward, back as ParseSchedule says
//	a wall clock is wrong       a warning and a metric; ticks go by the server's
//	the server's clock is set   forward: ticks come early by it; back: nothing is
//	                            run until it is there again; none is run twice
//	a schedule is changed       its ticks begin when the first replica with the new
//	                            one starts; see Revision in JobConfig
//	a job leaves the code       its ledger stays for 30 days or more, then expires
//
// # Keys and rights
//
// The keys of a ledger begin with the Client's Prefix and "{job/". A job's ledger lives as long as replicas run it, at least 30 days
// and twice its interval beyond, and for ever while it is paused.
//
// A Once has a ledger of its own, "once/" and its name. A Daemon has none: it is
// a lock, and stands in that lock's line.
//
// Where the server has ACLs, a user needs no more than this. For a Runner, and to
// pause, resume, trigger and watch its jobs from elsewhere:
//
//	~noonlock:* resetchannels &noonlock:ch:* &noonlock:job:* -@all +evalsha
//	+eval +time +lrange +subscribe +unsubscribe +ping +publish +exists +get +set
//	+hget +hset +hsetnx +hdel +hmget +hkeys +hgetall +hexists +hlen +lpush
//	+ltrim +lindex +lpop +llen +pttl +pexpire +persist
//
// for a Once, which neither skips nor has generations:
//
//	~noonlock:* resetchannels &noonlock:ch:* &noonlock:job:* -@all +evalsha
//	+eval +time +lrange +subscribe +unsubscribe +ping +publish +exists +get +set
//	+hget +hset +hdel +hmget +hkeys +hgetall +hexists +hlen +lpush
//	+ltrim +llen +pttl +pexpire +persist
//
// and for a Daemon, as for any lockcore.Mutex:
//
//	~noonlock:* resetchannels &noonlock:ch:* -@all +evalsha +eval +subscribe
//	+ping +publish +exists +get +set +del +pexpire +pttl +time +zadd +zrange
//	+zrem +zscore +hset +hget +hdel
//
// A user of several needs what any of them does. Without subscribe or publish all
// go on, but learn of news only when they look. Any other right that lacks is an
// error, which is logged or returned; nothing is run twice for it.
package singleton
