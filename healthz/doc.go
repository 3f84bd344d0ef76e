// Package healthz serves /livez, /readyz and /healthz like the Kubernetes API server:
// with the same paths, parameters, texts and status codes.
//
//	live, err := healthz.New("livez", healthz.Config{}, healthz.Overdue("election", elector.Check, 10*time.Second))
//	mux.Handle("/livez", live)
//	mux.Handle("/livez/", live)
//
// A Checker is a name and a function, so this package does not depend on the packages that it checks.
//
// # What belongs where
//
// A liveness check fails when a restart would help. It must not depend on Redis or on a database: an outage of those
// would restart every replica again and again. Overdue is a liveness check. It fails for work that continues although
// its lease or its drain is over.
//
// A readiness check may depend on everything that a request needs.
//
// # What is not guaranteed
//
// A check that exceeds Config.Timeout counts as failed, but continues to run in the background. A check that never
// returns keeps one goroutine, however many probes arrive.
package healthz
