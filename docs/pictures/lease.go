package main

// lease shows that the holder's end comes before the server's.
func lease() string {
	c := newCanvas(330, "A lease in time: the holder stops before Redis frees the lock")
	const client, server = 90, 210
	c.lane(client, "holder", 76)
	c.lane(server, "Redis", 76)

	// The grant.
	c.arrow(90, client, 104, server-14)
	c.arrow(106, server-14, 126, client+14)
	c.text(90, client-38, "code", "middle", "t0")
	c.line(90, client-32, 90, client, "guide")
	c.text(90, server+58, "small", "start", "grant")

	// A renewal that is answered.
	c.arrow(190, client+14, 204, server-14)
	c.arrow(206, server-14, 222, client+14)
	c.text(190, client-38, "code", "middle", "t0′")
	c.line(190, client-32, 190, client, "guide")
	c.text(150, server+58, "small", "start", "renewed")

	// Renewals that get no answer.
	c.lost(252, client+14, 272, server-14)
	c.lost(288, client+14, 308, server-14)
	c.text(236, server+58, "small", "start", "no answer")

	c.bar(128, 380, client-13, "good", "the work runs")
	c.bar(104, 430, server-13, "server", "the lock is taken")
	c.line(380, client-50, 380, client+30, "guide")
	c.text(380, client-56, "strong", "middle", "context is done")
	c.text(464, client+46, "small", "end", "t0′ + TTL − margin")
	c.line(430, server-40, 430, server+40, "guide")
	c.text(464, server+58, "strong", "end", "free for others")

	c.line(380, 304, 430, 304, "arrow")
	c.text(372, 308, "small", "end", "no holder works")
	return c.svg()
}
