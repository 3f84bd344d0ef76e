package main

// lease shows that the holder's end comes before the server's.
func lease() string {
	c := newCanvas(330, "A lease in time: the holder stops before Redis frees the lock")
	const client, server = 90, 210
	c.lane(client, "holder", 90)
	c.lane(server, "Redis", 90)

	// The grant.
	c.arrow(120, client, 150, server-14)
	c.arrow(152, server-14, 188, client+14)
	c.text(120, client-38, "code", "middle", "t0")
	c.line(120, client-32, 120, client, "guide")
	c.text(120, server+58, "small", "start", "grant")

	// A renewal that is answered.
	c.arrow(320, client+14, 350, server-14)
	c.arrow(354, server-14, 385, client+14)
	c.text(320, client-38, "code", "middle", "t0′")
	c.line(320, client-32, 320, client, "guide")
	c.text(330, server+58, "small", "start", "renewed")

	// Renewals that get no answer.
	c.lost(480, client+14, 520, server-14)
	c.lost(560, client+14, 600, server-14)
	c.text(470, server+58, "small", "start", "no answer")

	c.bar(190, 690, client-13, "good", "the work runs")
	c.bar(150, 760, server-13, "server", "the lock is taken")
	c.line(690, client-50, 690, client+30, "guide")
	c.text(690, client-56, "strong", "middle", "context is done")
	c.text(690, client+46, "small", "middle", "t0′ + TTL − margin")
	c.line(760, server-40, 760, server+40, "guide")
	c.text(760, server+58, "strong", "middle", "free for others")

	c.line(690, 300, 760, 300, "arrow")
	c.text(682, 304, "small", "end", "no holder works")
	return c.svg()
}
