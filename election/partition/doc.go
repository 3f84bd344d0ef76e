// Package partition shares n partitions of some work among the replicas that live, on Redis. Each partition has one
// leader at a time.
//
//	r, err := partition.NewRunner(client, "shards", 64, func(ctx context.Context, index int) {
//		work(ctx, index, lockcore.FromContext(ctx).Token()) // returns when ctx is done
//	}, partition.Config{})
//	err = r.Run(ctx) // on every replica
//
// # Guarantees
//
// These hold while the server keeps its data and nobody changes the clock of its machine.
//
//   - At most one replica leads a partition at a time. The token of a partition grows with each leader.
//   - Each replica settles at ⌊n/live⌋ to ⌈n/live⌉ partitions. One lease covers all of them, so its renewals cost the
//     same for any n.
//   - A partition moves in this order: its context is done with ErrMoved, its work returns, its replica reports that at
//     once, and another replica leads it, a few round trips later. Work that hangs delays its own partition only.
//   - No partition moves that the balance does not need. A restart of a replica that stops cleanly moves at most
//     2⌈n/live⌉ partitions. If many replicas start at the same time, the first ones give most of theirs back.
//   - The partitions of a replica that died are led by others within LeaseDuration and 0.5 s.
//   - n is stored while a replica lives. Another n is refused until all replicas have stopped.
//
// # Not guaranteed
//
//   - That a replica leads the same partitions again after a restart, and an order in time between partitions.
//   - Work that ignores its context does not stop. If two leaders at a time can do harm, the resource must refuse a
//     token smaller than the greatest one it has seen for the partition.
//   - If the server loses the key of a set, or its last changes, as in a failover to a replica that lagged, the
//     replicas notice that at their next renewal. Each stops the partitions that it does not lead at the server. Until
//     then, two replicas may lead a partition, the second with the greater token, unless Config.LockDelay of the Client
//     prevents it. If the loss undid a leave, the partitions of that replica may have no leader until its lease ends.
//
// # Bounds
//
// If the server does not answer, a call returns an error within this time, which includes dialing. Run returns
// nil. A call other than Run returns earlier if ctx ends.
//
//	6 s                               Set.Partitions
//	6.7 s                             Sets
//	until ctx ends + ShutdownTimeout  Runner.Run
//	0 s                               Runner.Check, Runner.Ready
//
// Work that does not return when its context is done delays Run.
//
// # Failures
//
//	a replica is killed, or its   Others lead its partitions within LeaseDuration and 0.5 s.
//	network fails                 Its contexts are done before that.
//	work does not stop            Its partition does not move. Check fails. Without a lease, another
//	                              replica leads the partition.
//	a panic or Goexit of work     All partitions of the replica are given back. The panic continues in Run's caller.
//	a message is lost             The reply to a renewal tells the replica to sync.
//	the server is unavailable     Work stops in time. When it is back, all replicas join again.
//	the Client is closed          All contexts are done with lockcore.ErrClosed. Run returns it.
//
// # Rights
//
// docs/SECURITY.md lists the rights (ACL) that partitions need, and docs/METRICS.md their metrics.
package partition
