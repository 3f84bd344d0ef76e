// Package sqlonce makes the effect of a scheduled job happen exactly once. It commits the rows
// that a run writes in one transaction with a marker for the run's (job, tick), and it refuses
// the runs of holders that have been superseded.
//
// A lock alone cannot do that. Its holder may be suspended after its last check and resume
// after another holder has taken over. It may also die between COMMIT and the record of its
// success. Here the database decides, because it stores the greatest fencing token and the
// markers.
//
//	once, err := sqlonce.New(db, sqlonce.PostgreSQL, sqlonce.Config{})
//	err = once.CreateTables(ctx)
//	applied, err := once.Do(ctx, run.Marker(), // of a singleton.Run
//		func(ctx context.Context, tx *sql.Tx) error { … all statements through tx … })
//
// # Guarantees
//
//   - At most one transaction of Do commits for a (job, tick). This does not depend on the
//     tokens, on the number of processes, or on when they are suspended, die or retry. The rows that fn wrote through
//     tx are in the database if and only if the marker is.
//   - After a token has been seen in its scope, no smaller token commits there. The scope is
//     the job, or the tick with Marker.Overlap. Do records a token as seen when its
//     transaction commits. If fn fails and the connection still works, Do rolls back the
//     rows but still records the token. An equal token is accepted: it is a retry of the
//     same run.
//   - A tick older than those that Prune kept is refused with ErrPruned, because its marker may
//     have been deleted.
//
// # Not guaranteed
//
//   - Effects outside tx are not rolled back and happen as often as fn is called: mail, HTTP,
//     other databases, and the same database through db instead of tx.
//   - fn may be called several times, in one Do (after a deadlock, a serialization failure or a
//     busy database) and in several. Only one call is committed. fn must reset its results
//     in each call.
//   - The ledger of the job is not read. A late holder may commit a tick that the ledger has
//     abandoned, unless a greater token was seen before.
//   - fn must not end the transaction: not with Commit or Rollback of tx, not with SQL (COMMIT,
//     ROLLBACK, AND CHAIN), and on MySQL and MariaDB not with a statement that commits
//     implicitly (BEGIN, DDL, LOCK TABLES, SET autocommit = 1). Later statements are outside
//     the transaction. Do detects that on every database, but cannot prevent it, and returns
//     ErrTransactionEnded. A singleton.Runner then records the tick as unknown and does not
//     retry. Savepoints are allowed.
//   - SQLite rolls back a whole transaction after some errors (disk full, I/O error,
//     interrupt). If fn ignores this error, its later statements are outside the
//     transaction. fn must return errors.
//
// # Failures
//
//	holder suspended before BEGIN         it resumes, and is refused with ErrStaleToken if a
//	                                      greater token was seen
//	holder suspended between statements   the database closes the connection after
//	                                      Config.IdleTimeout and rolls back. A takeover waits
//	                                      for that. The holder's next statement fails.
//	holder suspended while it reads       the same on MySQL, MariaDB, and PostgreSQL over TCP
//	holder suspended before COMMIT        the same; COMMIT fails, with ErrUnknownOutcome or the
//	                                      error of the server
//	reply to COMMIT lost                  ErrUnknownOutcome. The next Do finds the marker and
//	                                      returns applied false, or does the work. A
//	                                      singleton.Runner retries. If no attempt succeeds, it
//	                                      records the tick as unknown, not as failed.
//	holder killed                         the database rolls back when the connection ends
//	fn fails, panics, calls Goexit        rolled back; the token is kept; a panic continues
//	fn ends the transaction               ErrUnknownOutcome and ErrTransactionEnded; after a
//	                                      panic or Goexit, Do panics with this error
//	ctx ends before COMMIT is sent        rolled back; the error is ctx's, with its cause
//	ctx ends during COMMIT                Do waits 2 s more for the reply, then returns
//	                                      ErrUnknownOutcome
//	deadlock, serialization, busy         rolled back and tried again, five times in all
//	database unavailable                  the error of the driver
//	a row is not stored                   rolled back, before fn is called; ErrNotStored, or the
//	                                      error of the database
//
// SQLite has no server that ends the transaction of a suspended holder. Such a process blocks
// all writers of the file until it resumes or dies. Config.IdleTimeout has no effect there.
//
// database/sql sets no deadline for COMMIT and ROLLBACK. If their reply never arrives, Do
// returns as in the table above and leaves the transaction to a goroutine. The goroutine holds
// a connection of the pool until the driver returns an error: after the read timeout of its
// DSN, or after the timeout of TCP, which may take 15 minutes. If that happens in each run, goroutines
// and connections accumulate. Set a read timeout a little above the lock timeout, and
// db.SetMaxOpenConns, to limit both.
//
// Do checks ctx a last time just before COMMIT. With the context of a lease, it therefore does
// not commit after the end of the lease, even if no timer has fired yet. A process that is
// suspended after that check is stopped by the database, as above.
//
// # Other holders
//
// A leader or the holder of a lock has no ticks and no markers. It calls Admit at the
// start of its own transaction. Admit returns an error if a greater token was
// admitted before. The file sqlcheck/leader_example_test.go below this package shows
// this for a leader.
//
// # Tables
//
// With the default prefix (see Config.TablePrefix):
//
//	noonlock_fences   job, tick, token, kept_from   PRIMARY KEY (job, tick)
//	noonlock_markers  job, tick, attempt, token, holder, applied_at   PRIMARY KEY (job, tick)
//
// tick, kept_from and applied_at are milliseconds since the Unix epoch. tick of a triggered run is
// the negative instant of the request. In fences, tick is 0 in the row of a
// whole job, and -2^63 in the row of a name given to Admit. kept_from of a job is the instant up to
// which Prune has deleted markers. Text is compared byte by byte.
//
// The tables may be partitioned by tick. If no partition takes a tick, the database refuses
// its run. So add partitions in time, and one below 0 for triggered runs and names.
//
// Do reads each marker that it has inserted, in one more round trip to the database. A
// trigger, a rule or a missing key can keep a marker out of the table, or allow a second
// one, although the INSERT succeeds. Nor does an INSERT without a row prove an earlier success: only a marker that was
// read does. Do does not see that a marker is deleted later, for example by a deferred trigger.
//
// Do takes a connection from the pool and sets its time limits. It restores them before it
// returns the connection, or closes it if that fails. On PostgreSQL, transactions run at READ
// COMMITTED, so that a takeover sees what was committed while it waited. On the other databases
// they run at the level of the session.
package sqlonce
