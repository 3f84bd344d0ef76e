// Package lease counts how long leases are valid, ends them in time and says when they
// are renewed. It knows neither Redis nor locks: the package above gives it a [Renewer]
// and a [Holder] for each lease.
//
// # Validity
//
// A lease is valid until t0 + Times.Valid. t0 is read from the local clock before the
// request is sent that grants or renews the lease, so the local end comes before the
// server's end, whatever the network does. [Margin] covers clocks of different rates. A
// renewal that is answered after the end revives nothing.
//
//	grant sent   renewal sent             local end      server's end
//	    t0 ────────── t1 ─────────────────── t1 + Valid ─── t1 + TTL + delay
//
// # What comes first
//
// One goroutine ends leases. It closes the contexts of all leases whose time is over
// before it does anything else, and calls nothing of the user's. Another goroutine
// renews. A renewal that hangs, a log sink that blocks or a slow clock delays no end.
// Err of a lease's contexts reads the clock, since no timer runs while a process is
// paused.
//
// # Failures
//
//	a renewal fails or is late    another one is sent in half of the time that is left,
//	                              on another connection
//	all connections hang          the oldest renewal is aborted, and its connection used
//	the server has no such lease  the lease ends: the Renewer says so
//	the process is paused         Err and Remaining look at the clock at the first use
//	the machine is suspended      the system's clock goes on, where there is one
//
// # What is not guaranteed
//
// Code that looks at no context and asks nothing here goes on after the end. Timers may
// be late by as much as the scheduler delays a goroutine.
package lease
