// Package lockcoretest helps to test code that holds locks on Redis. It provides a server
// inside a testing/synctest bubble, and a network with injected faults. It depends on go-redis and
// net.Conn but not on lockcore, so it can test any other lock as well.
//
//	synctest.Test(t, func(t *testing.T) {
//		r := lockcoretest.NewRedis(t)   // miniredis on the bubble's clock
//		rdb := r.Client()
//		lost := r.Faults().Inject(t, lockcoretest.Fault{
//			Kind:  lockcoretest.SwallowReply, // executed, but the reply is lost
//			Match: lockcoretest.Command("SET", "lock"),
//			Count: 1,
//		})
//		…
//		time.Sleep(time.Minute)         // takes no time, and keys expire
//	})
//
// Outside a bubble, [Redis] runs in real time. [Faults] work between a client and any
// server ([Faults.Dialer]). A fault test proves nothing if the fault was not injected:
// [Faults.Inject] and [MustFire] then fail the test.
//
// # Faults
//
//	what happens                               how to inject it
//	a request never arrives                    DropRequest
//	an acquire arrives after its own release   DelayRequest, then Rule.Lift
//	executed, and the reply is lost            SwallowReply (silent), ResetAfter (reset)
//	requests pass, replies are dropped         SwallowReply without Match
//	a client's retry executes twice            DuplicateRequest, or ResetAfter with go-redis's retries
//	a reply a byte at a time, or late          TrickleReply, DelayReply
//	a reply twice                              RepeatReply
//	a message lost or late                     DropMessage, DelayMessage
//	a forged message                           publish it yourself, with Redis.Client
//	the subscription's connection is cut       Faults.CutSubscriptions
//	every connection is cut                    Faults.Cut
//	no connection can be made                  RefuseDial
//	a blackhole both ways, for a while         Faults.Partition, then Heal
//	a blackhole until TCP times out            Partition, Cut, Heal
//	the server is stopped, its clock runs on   Redis.Hang, Unhang
//	a restart with or without data             Redis.Restart; with time in between: Stop, Start
//	the server's clock is set                  Redis.StepClock
//	the server answers LOADING, READONLY, …    Redis.Server().SetError
//	scripts are forgotten                      SCRIPT FLUSH, by a client
//
// Faults parse RESP2 and RESP3; a connection that does not speak RESP is closed. They do not support TLS, MONITOR,
// replication, or CLIENT REPLY OFF and SKIP. They lose whole requests and replies, and never
// reorder one connection, as TCP would not. A partition buffers any amount, and a connection ends only when one
// side closes it or the test cuts it.
//
// # What a server in the bubble does not show
//
// miniredis is more lenient than Redis. A test that passes on it must also pass on a real
// server. The differences with go-redis v9.23, miniredis v2.40 and redis-server 7.0:
//
//   - Lua formats numbers in full: tostring(1763000000000000) is "1763000000000000",
//     on Redis "1.763e+15". Use string.format("%.0f", n).
//   - WAIT is allowed in a script; on Redis it is an error.
//   - PUBLISH counts a new subscriber immediately. Output buffers never overflow, so a
//     slow subscriber is never disconnected.
//   - There is no lack of memory, no BUSY, no permission (ACL), no replica, no cluster slot, and no limit of clients.
//   - Keys expire at the exact instant, but only when they are next accessed, and
//     without keyspace notifications. Restarts and kills lose no acknowledged write.
//   - Commands run one at a time. If several clients wait at one instant, any of them may be
//     first. No virtual time passes while the server works, so slow code stays hidden.
//
// It is stricter or different in these points:
//
//   - INFO server and INFO replication contain only the ids that lockcore.Config.LockDelay
//     needs. They are new after each start. A pre-hook replaces them.
//   - Errors inside scripts begin with "ERR Error compiling script", so WRONGTYPE and
//     other errors cannot be recognized by their prefix.
//   - bit, struct and cmsgpack are missing in Lua.
//   - TTLs of more than about 290 years overflow.
//   - A connection that has subscribed takes no other commands, RESP3 or not.
//   - go-redis cannot detect that an idle connection in memory is closed before it reuses it. After a restart or a
//     cut, the first command on each idle connection fails.
//   - Messages to a channel and to a pattern on one connection may arrive in another order.
//
// # Bubbles
//
// Create everything inside the bubble: server, clients, faults, clocks. Do not let go-redis
// wait for a connection of a full pool in more than one bubble of a process, as it keeps the
// timers of that wait in a global pool. [Redis.Options] sets a pool size that is not reached.
//
// Do not use miniredis's own Dial: with its net.Pipe, a subscriber that does not read blocks the server, and
// with it the bubble. The connections of [Redis] have unlimited buffers.
package lockcoretest
