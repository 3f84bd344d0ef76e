// Package statusz serves a web page that shows the elections, jobs, locks and partitions on a server,
// and follows their changes.
//
//	page, err := statusz.Handler(client, statusz.Config{})
//	mux.Handle("/statusz/", page)
//	server.RegisterOnShutdown(page.Close)
//
// The page has no build step, and loads nothing from other sites. It has one stream of
// server-sent events, which the browser opens again if it ends. "noonctl serve" serves the same
// page.
//
// # What it shows
//
//	elections   the leader, its term and token, the time left of its lease, the candidates in
//	            order, the newest 100 terms of a week
//	jobs        the next tick, the last 60 entries of the history, the last outcome, open runs,
//	            whether the job is paused, its schedule
//	locks       the holders, their tokens, and the queue
//	partitions  how many each replica leads
//
// A list shows 25 names at a time, and can be filtered by a part of the name. Jobs that need attention are first:
// those whose newest run failed or ended as unknown, those with a tick that is due for more than their TTL and 5 s,
// those that run, and those without replicas. The list has the number of each. Jobs can also be filtered by their
// state, and sorted by name or next tick. The server filters and sorts all jobs, not only the shown names. Of long
// queues the page shows the first 20. Errors are shortened until the details of a run are opened. So a page has less
// than 500 KB, whatever the number of jobs.
//
// A job has its own page, at ?job=NAME: its schedule, its pause with author and reason, how long runs took and how
// late they began, the newest 100 runs, the attempts that failed with whole errors, the acts of operators, and its replicas with their definitions.
// All times are UTC.
//
// # Timing
//
//	locks                         read every 2 s
//	a leader or a run begins or   read within 0.5 s of a message, and every 10 s in case a message
//	ends; pause, resume, trigger  is lost. The row of a leader is also read when its lease should
//	                              end: its replica may have died.
//	candidates                    read every 10 s, and with the leader
//	new names                     searched for every 10 s, or every 50 times as long as the
//	                              search takes, if that is longer
//	filters, order and count      all jobs are read as often as new names are searched for,
//	of failing jobs               with two requests for each
//
// For the rest, only what a browser shows is read, once for all browsers. The page of a job is read once for each
// browser, and again when the job changes. While no browser has the page open
// and visible, nothing is sent to the server.
//
// # Failures
//
//	Redis does not answer         3 s after a request, the page is out of date. It says since when, and
//	or refuses requests           what was not read, and keeps the last state.
//	Redis answers again           The page is live when everything that it shows was read. Until then, the
//	                              server tries one request a second.
//	the stream ends               The page says so, and connects again.
//	a right is missing            The same, and the list or the row shows the error.
//	more than 100 browsers        Further browsers are refused with 503. The page says so, and tries again.
//
// # Actions
//
// With Config.AllowActions, users of the page can pause, resume and trigger a job, run a tick
// again, cancel a run, make a leader resign in favor of a candidate, and release a lock. Each asks for confirmation
// and for a reason. An action does not affect a leader or a holder that began after the page was shown.
//
// One confirmation pauses, resumes or reruns all jobs that match the filter. It shows their number. The page then sends
// one action after the other, and names the jobs for which it failed. A rerun runs the newest ended run again.
//
// If an action fails, the page says whether it was not done or may have been done. The latter means
// that Redis or the server of the page has not answered (504 Gateway Timeout).
//
// An action is a POST with a header that scripts of other sites cannot set. It is refused unless the
// browser says that it comes from the same origin (Sec-Fetch-Site, or Origin).
//
// # Security
//
// The page has no users and no passwords. Everybody who reaches the handler sees names,
// identities, metadata, errors and the acts of operators, so protect it as you protect metrics of the
// same detail. If browsers reach it without a password, as on a loopback address, set
// Config.Hosts: otherwise a foreign site can read it with DNS rebinding.
//
// Texts from Redis are only ever set as text, never as HTML. The Content-Security-Policy allows
// scripts and styles of the same origin alone, none of them inline, and no frame may contain the
// page.
//
// # Rights
//
// The Client needs the rights for a singleton.Job, for Client.Inspect and Locks of lockcore, and for elections. To
// release locks, it also needs the rights for ForceRelease. docs/SECURITY.md lists all of them.
//
// # Not guaranteed
//
// The page is for people. What it shows may be out of date by the times above. A lock that is
// held for less than those times may never be shown. A Client of lockcore.NewQuorum cannot list
// names, so the page then shows only that error.
package statusz
