// Package healthz answers /livez, /readyz and /healthz the way the Kubernetes API
// server does: the same paths, parameters, texts and codes.
//
//	live, err := healthz.New("livez", healthz.Config{}, healthz.Overdue("election", elector.Check, 10*time.Second))
//	mux.Handle("/livez", live)
//	mux.Handle("/livez/", live)
//
// A Checker is a name and a function, so this package knows none of the things it
// asks about.
//
// # What belongs where
//
// Liveness says that a restart would help. It must not depend on Redis or on a
// database: their outage would restart the whole fleet, again and again, and help
// nobody. It fails for work that goes on although its lease or its drain is over: see
// Overdue.
// Readiness may depend on whatever a request needs.
//
// # What is not guaranteed
//
// That a check has ended when its answer is given: one that takes longer than the
// Config's Timeout counts as failed, and goes on behind. A check that never returns
// keeps one goroutine, not one for each probe.
package healthz
