package cli

// An act is a command that changes a job or an election.
type act struct {
	verb, short, long, example string
	flags                      string // flags in the usage line
	tickUsage                  string // usage of --tick, if the command has it
}

var acts = []act{{
	verb: "pause", flags: " | --all", short: "Stop a job from starting runs, until resume",
	long: `pause stops all replicas from claiming new ticks of the job. A run that has begun continues with all its
attempts, also if its replica dies, and the job can be triggered. The replicas notice the pause at their next claim.

With --all, each job is paused that has a ledger, and the command prints a line for each. A job that gets one later
is not paused. It can be repeated.`,
}, {
	verb: "resume", flags: " | --all", short: "End a pause",
	long: `resume ends a pause. JobConfig.CatchUp decides which of the ticks that were due meanwhile run.
The others are recorded as skipped, with the reason "paused". With --all, each job that has a ledger is resumed.`,
}, {
	verb: "trigger", flags: " [--at INSTANT --id ID]", short: "Run a job once more, now or at an instant",
	long: `trigger requests one more run of the job, even while it is paused. A replica runs it at once, or after
the current run if runs may not overlap. The printed tick is the name of the run in the history. If Redis
did not answer, look at "noonctl describe job" before you repeat the command: each trigger is a run of its own.

With --at, the run begins at that instant on the clock of Redis, or after the pause of a paused job. It has an id
and may have a payload, which a command of "noonctl cron" gets as NOONLOCK_ID and NOONLOCK_PAYLOAD. The command can
be repeated: an id is one run. "noonctl describe job" shows the runs that wait, without their payloads.`,
	example: `  noonctl trigger draw --reason "it was missed"
  noonctl trigger invoice --at 2026-12-24T18:00:00Z --id order-7 --payload 7.pdf`,
}, {
	verb: "rerun", flags: " --tick INSTANT", short: "Run a tick again that did not succeed",
	long: `rerun runs a tick again that ended as failed or unknown, or was skipped, even while the job is paused. The
run has the same name, so an effect that commits with its marker (package sqlonce) or that uses NOONLOCK_KEY
happens once. Its token is greater, and its attempts count from 1. A tick that has succeeded, or is not in
the history, is refused. If Redis did not answer, repeat the command: it tells whether the tick runs.`,
	example:   `  noonctl rerun draw --tick 2026-01-02T12:00:00Z --reason "the database was away"`,
	tickUsage: "the tick or the triggered run, as shown by history (required)",
}, {
	verb: "cancel", flags: " [--tick INSTANT | --id ID]", short: "Stop a run of a job",
	long: `cancel ends the runs that have begun, or with --tick the run of one tick. Their
replicas notice it at once by a message, and at the latest when they renew the lease of the run. A command of
"noonctl cron" gets SIGTERM. The run is recorded as what its work then returns, and not attempted again.

If its replica dies before that, the run is held for at most its TTL from the first request. Then another
replica, or a second cancel with --tick, records it as unknown. A run that nobody holds ends at once: as
skipped if it had not begun, as unknown if an attempt may have taken effect, otherwise as failed. With --id,
the run is that of "noonctl trigger --at", also before its instant.`,
	example:   `  noonctl cancel draw --reason "wrong input"`,
	tickUsage: "the tick or the triggered run, as shown by describe job (default: all that have begun)",
}, {
	verb: "resign", flags: " [--to IDENTITY]", short: "Ask the leader of an election to resign",
	long: `resign asks the present leader to resign, and does not wait until it has. The context of its work ends;
a command of "noonctl elect" gets SIGTERM. When the work has returned, the first candidate leads, or with --to
the first one of that identity. The former leader is then the last candidate; if it is the only one, it
leads again.

The leader notices the request at once by a message, and at the latest when it renews its lease. If it
dies before, its lease expires as usual, and no later leader is asked. The request can be repeated.`,
	example: `  noonctl resign controller --reason "its node is drained"
  noonctl resign controller --to pod-2`,
}}
