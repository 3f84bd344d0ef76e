// Package lease tracks how long leases are valid, ends them in time, and schedules their renewals. It depends neither
// on Redis nor on locks: the package above supplies a [Renewer], and a [Holder] for each lease.
//
// # Validity
//
// A lease is valid until t0 + Times.Valid. t0 is read from the local clock before the grant or renewal request is sent.
// So the local end comes before the server's end, whatever the network does. [Margin] covers clocks that run at
// different rates. A renewal that is answered after the end does not revive the lease.
//
//	grant sent   renewal sent             local end      server's end
//	    t0 ────────── t1 ─────────────────── t1 + Valid ─── t1 + TTL + delay
//
// # Priorities
//
// One goroutine ends leases. It first closes the contexts of all leases whose time is over, and runs no code of the
// user's. Another goroutine renews. A renewal that hangs or a log sink that blocks does not delay the end of a lease.
// The Err method of a lease's contexts reads the clock, since timers do not fire while a process is paused.
//
// # Failures
//
//	a renewal fails or is late    another one is sent when half of the remaining time is over
//	a server is dead              only the leases of its Stream are affected
//	a name moves to another       the renewals of its leases use the Stream of the new server, at
//	server                        once after RenewMoved
//	all connections hang          leases are renewed again and again, with a growing pause
//	the server lacks the lease    the Renewer ends the lease
//	the process is paused         Err and Remaining read the clock at the first call
//	the machine is suspended      CLOCK_BOOTTIME continues, so leases end in time;
//	                              on a system without it, they end late
//
// # What is not guaranteed
//
// Code that checks no context and calls no method of the lease continues after the end.
// Timers can be late by as much as the scheduler delays a goroutine.
package lease
