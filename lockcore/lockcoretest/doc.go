// Package lockcoretest helps to test code that holds locks on Redis: a server
// inside a testing/synctest bubble, a network that fails when it is told to,
// a clock that jumps, and a checker for what the holders believed. It knows
// go-redis and net.Conn, not lockcore, and serves any other lock as well.
//
//	synctest.Test(t, func(t *testing.T) {
//		r := lockcoretest.NewRedis(t)   // miniredis on the bubble's clock
//		rdb := r.Client()
//		lost := r.Faults().Inject(t, lockcoretest.Fault{
//			Kind:  lockcoretest.SwallowReply, // executed, and nobody hears of it
//			Match: lockcoretest.Command("SET", "lock"),
//			Count: 1,
//		})
//		…
//		time.Sleep(time.Minute)         // takes no time, and keys expire
//	})
//
// [Redis] runs in real time outside a bubble. [Faults] stand between a client
// and any server ([Faults.Dialer]), and [Proxy] puts them in front of a real
// one, for processes. A test of a fault that did not happen proves nothing:
// [Faults.Inject] and [MustFire] fail such a test. [Clock] is a process's clock
// that moves without timers running. [History] records who believed what, and
// finds two holders, tokens out of order, and work outside a hold.
//
// # Faults
//
//	what happens                               how
//	a request never arrives                    DropRequest
//	an acquire arrives after its own release   DelayRequest, then Rule.Lift
//	executed, and the reply is lost            SwallowReply (silent), ResetAfter (reset)
//	requests pass, replies are dropped         SwallowReply without Match
//	a client's retry executes twice            DuplicateRequest, or ResetAfter with go-redis's retries
//	a reply a byte at a time, or late          TrickleReply, DelayReply
//	a message lost or late                     DropMessage, DelayMessage
//	a forged message                           publish it yourself, with Redis.Client
//	the subscription's connection is cut       Faults.CutSubscriptions
//	every connection is cut                    Faults.Cut
//	no connection can be made                  RefuseDial
//	a blackhole both ways, for a while         Faults.Partition, then Heal
//	a blackhole until TCP gives up             Partition, Cut, Heal
//	the server is stopped, its clock runs on   Redis.Hang, Unhang
//	a restart with data, or without            Redis.Restart; with time between: Stop, Start
//	the server's clock is set                  Redis.StepClock
//	the server answers LOADING, READONLY, …    Redis.Server().SetError
//	a process wakes after its host slept       Clock.Advance, and for the others time.Sleep or StepClock
//	scripts are forgotten                      SCRIPT FLUSH, by a client
//
// Faults read RESP2 and RESP3, requests as arrays of strings or inline. They do
// not understand TLS, MONITOR, replication, or CLIENT REPLY OFF and SKIP;
// a connection that does not speak RESP is closed. They lose whole requests and
// replies, never parts, and never reorder one connection: TCP would not. They
// know nothing of windows and acknowledgements: a partition holds back any
// amount, and a connection dies only when somebody closes or cuts it.
//
// # What a server in the bubble does not show
//
// miniredis is kinder than Redis. What passes on it must pass on a real server
// too before it is believed. With go-redis v9.23, miniredis v2.40 and
// redis-server 7.0:
//
//   - Numbers in Lua are written out: tostring(1763000000000000) is "1763000000000000",
//     on Redis "1.763e+15". Use string.format("%.0f", n).
//   - WAIT is allowed in a script; on Redis it is an error.
//   - PUBLISH counts a subscriber at once, and no output buffer ever overflows:
//     a slow subscriber is never dropped.
//   - Nothing is ever evicted or refused for want of memory; a script is never too
//     slow (no BUSY); there are no rights (ACL), no replicas (no READONLY by itself,
//     no lost write), no cluster slots, no maximum of clients.
//   - Keys expire at the instant they are next looked at, exactly; nothing is
//     announced. Restarts and kills lose no write that was acknowledged.
//   - Commands run one at a time, but of clients that wait at one instant any may
//     be first. Time stands still while the server works: what takes no virtual
//     time can hide a slow path.
//
// It is harsher, or merely different, here:
//
//   - Errors inside scripts begin with "ERR Error compiling script", so that
//     WRONGTYPE and the like cannot be told by their prefix.
//   - bit, struct and cmsgpack are missing in Lua.
//   - TTLs beyond some 290 years overflow.
//   - A connection that has subscribed takes no other commands, RESP3 or not.
//   - A connection in memory has no socket, so go-redis cannot see, before it uses
//     an idle one again, that it is closed: after a restart or a cut the first
//     command on each idle connection fails, where over TCP most are replaced.
//     Commands that are not retried will show it.
//   - Messages to a channel and to a pattern of one connection may change places.
//
// # Bubbles
//
// Make everything inside the bubble: server, clients, faults, clocks. Do not
// let go-redis wait for a connection of a full pool in more than one bubble of
// a process: it keeps the timers of that wait in a global pool, and the runtime
// stops the program when the next bubble is given one ("select on synctest
// channel from outside bubble"). [Redis.Options] have a pool that does not fill;
// a test of a full pool belongs on a real server.
//
// Use miniredis's own Dial in a bubble only if every subscriber reads all the
// time: over its unbuffered net.Pipe one that does not stops the server, and
// with it the bubble. Connections of [Redis] are buffered without limit.
package lockcoretest
