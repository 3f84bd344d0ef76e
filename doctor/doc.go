// Package doctor asks Redis about everything that the guarantees of noonlock depend on, and judges
// the answers. "noonctl doctor" prints them. A program can show them to its operators:
//
//	report, err := doctor.Examine(ctx, []*redis.UniversalOptions{options}, doctor.Config{})
//	if err == nil && report.Verdict == doctor.Fail { … }
//
// It accepts the options that lockcore.NewFromOptions accepts: of one server, Sentinel or a cluster. Several
// are the servers of lockcore.NewQuorum. Each server is asked on a connection of its own.
//
// # Guarantees
//
//   - Nothing is left in Redis. Rights are tried on a key that never exists, the one key that is
//     written expires after 1 ms, and the one message is sent on a channel of its own.
//   - A server that grants nothing now fails: it must write that key.
//   - Examine returns after Config.Observe + 4 Config.Timeout at the latest, even if a server hangs.
//   - A question that the server refuses is a warning which names the missing right. It does not
//     prevent the other checks.
//
// # Not guaranteed
//
//   - The answers hold for one moment and one client. Another client may have another
//     network, another clock and another user.
//   - The replicas behind Sentinel, or of a single primary, are not asked. Their primary says how
//     far behind they are. In a cluster, all nodes are asked.
//   - Of a server with many keys, only some are searched: the search ends after Config.Timeout. At
//     most 10,000 keys under the prefix are examined. The report says so.
//
// # Rights
//
// INFO and CONFIG GET need +info and +config|get, the search for keys needs +scan +type +pttl +get
// +hget. All other checks need only the rights of the locks, elections and jobs themselves.
package doctor
