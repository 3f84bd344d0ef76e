// Package sqlonce gives a scheduled job an effect that happens exactly once: the rows that a run writes and a marker
// for its (job, tick) are committed in one transaction, and a holder that has been superseded is refused.
//
// A lock alone cannot promise that. Its holder may freeze after the last check and wake up when another has taken
// over, or die between its COMMIT and the moment it says so. Here the database decides: it has seen the greatest
// fencing token, and it has the marker.
//
//	once, err := sqlonce.New(db, sqlonce.PostgreSQL, sqlonce.Config{})
//	err = once.CreateTables(ctx)
//	applied, err := once.Do(ctx, run.Marker(), // of a singleton.Run, or a sqlonce.Run of your own
//		func(ctx context.Context, tx *sql.Tx) error { … every statement through tx … })
//
// # What is guaranteed
//
//   - For one (job, tick) at most one transaction of Do ever commits, whatever the tokens, the number of processes and
//     the times at which they freeze, die or retry. What fn wrote through tx is in the database if and only if the
//     marker is.
//   - Once a token has been seen in its scope (the job, or with Run.Overlap the tick), no smaller one
//     commits in it. Seen means that the transaction which brought it committed, or that its fn failed in any way that left its connection alive: then
//     its rows are undone, but the fence stays raised. A token that is equal is the same run trying again: allowed.
//   - A tick that is older than what Prune kept is refused (ErrPruned), as its marker may be among those deleted.
//
// # What is not
//
//   - Effects outside tx (mail, HTTP, another database, the same database through db instead of tx) are not undone by a
//     rollback and may happen as often as fn is called.
//   - fn may be called several times, in one Do (after a deadlock, a serialization failure or a busy database) and in
//     several. Only one of the calls is committed. It must set what it gives to the caller anew each time.
//   - The lock or ledger that says who runs which tick is not looked at: a tick that was given up there may still be
//     committed here by a late holder, unless a greater token came first.
//   - fn must not end the transaction: not by Commit or Rollback of tx, not by SQL (COMMIT, ROLLBACK, AND CHAIN), and on
//     MySQL and MariaDB not by a statement that commits implicitly (BEGIN, DDL, LOCK TABLES, SET autocommit = 1). What
//     follows is outside the transaction. Do notices that on every database, too late to prevent it, whether fn then
//     succeeds, fails or panics: ErrTransactionEnded. A singleton.Runner records the tick as unknown and does not try
//     again. Savepoints of fn's own are allowed.
//   - SQLite undoes a whole transaction by itself after some errors (disk full, I/O, an interrupted write). A fn that
//     ignores an error of its statements and goes on would then write outside it. Return errors.
//
// # What happens when
//
//	holder frozen before BEGIN            wakes, finds a greater token: ErrStaleToken
//	holder frozen between statements      the database closes its connection after Config.IdleTimeout and rolls back;
//	                                      until then a takeover waits for the fence row. Its next statement fails.
//	holder frozen while reading a result  the same on MySQL, MariaDB, and PostgreSQL over TCP
//	holder frozen before COMMIT           the same; COMMIT fails, as *UnknownOutcomeError or with the server's words
//	reply to COMMIT lost                  ErrUnknownOutcome; call Do again: it finds the marker and says applied false,
//	                                      or does the work now. A singleton.Runner tries again, and if that does
//	                                      not succeed either, it records the tick as unknown, not as failed
//	holder killed                         the database rolls back when its connection ends
//	fn fails, panics, calls Goexit        rolled back, the fence stays raised; the panic goes on
//	fn ends the transaction               ErrUnknownOutcome and ErrTransactionEnded; after a panic that is its value
//	ctx ends before COMMIT is sent        rolled back, ctx's error and cause
//	ctx ends while COMMIT is under way    Do waits 2 s more for the answer, then ErrUnknownOutcome
//	deadlock, serialization, busy         rolled back and tried again, five times in all
//	database away                         the driver's error
//
// SQLite has no server that could end a frozen holder's transaction: a process that is stopped in mid-transaction
// blocks every writer of the file until it goes on or is killed. Config.IdleTimeout means nothing there.
//
// Drivers give COMMIT and ROLLBACK no deadline. Where their answer never comes (a network that swallows everything),
// Do returns as above and leaves the transaction to a goroutine of its own, which holds one connection of the pool and
// ends when the driver gives up: with the DSN's read timeout, or when TCP does, which may take a quarter of an hour.
// Where that happens at each run, goroutines and connections pile up so far; a read timeout a little above
// Config.LockTimeout, and db.SetMaxOpenConns, bound both.
//
// ctx is looked at once more right before COMMIT. Given the context of a lease, work whose lease is over is therefore
// not committed even if no timer has run yet; what freezes after this last look is stopped by the database as above.
//
// # Other holders
//
// A leader, or the holder of any lock, has no ticks, and no marker to commit. Admit refuses its write in a transaction of
// its own where a greater token was admitted before.
//
// # Tables
//
// With the default prefix (see Config.TablePrefix); Schema returns the statements that make them.
//
//	noonlock_fences   job, tick, token, kept_from   PRIMARY KEY (job, tick)
//	noonlock_markers  job, tick, attempt, token, holder, applied_at   PRIMARY KEY (job, tick)
//
// tick, kept_from and applied_at are milliseconds since the Unix epoch. In fences, tick is 0 in the row for the whole
// job, and -1 in that of a name given to Admit; the job's kept_from is the instant up to which Prune has deleted markers. Text is compared byte by byte.
//
// Do takes a connection of the pool for itself and sets its time limits. They are set back before the pool gets the
// connection again; one on which that fails is closed. PostgreSQL transactions run at READ COMMITTED, since a
// takeover has to see what was committed while it waited; the other databases at the session's level.
package sqlonce
