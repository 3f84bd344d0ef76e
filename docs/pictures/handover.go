package main

// handover shows the three commands of a handover.
func handover() string {
	c := newCanvas(340, "A handover: three commands, for any number of waiters")
	const holder, server, next, third = 60, 140, 220, 300
	c.lane(holder, "holder", 90)
	c.lane(server, "Redis", 90)
	c.lane(next, "waiter 1", 90)
	c.lane(third, "others", 90)

	c.bar(90, 220, holder-13, "good", "holds, token 41")
	c.bar(90, 372, next-13, "wait", "waits, sends nothing")
	c.bar(90, 464, third-13, "wait", "wait, send nothing")
	c.arrow(220, holder, 244, server-14)
	c.text(240, holder+32, "small", "start", "1  unlock")
	c.bar(230, 362, server-13, "server", "grants")
	c.arrow(350, server+14, 364, next-14)
	c.text(348, server+44, "small", "end", "message: granted")
	c.arrow(384, next-14, 396, server+2)
	c.arrow(396, server+2, 410, next-14)
	c.text(424, server-20, "small", "end", "2  confirm")
	c.bar(404, 464, next-13, "good", "holds")
	c.text(464, next+36, "small", "end", "token 42")
	c.arrow(420, holder, 436, server-4)
	c.text(464, holder-14, "small", "end", "3  queue again")
	return c.svg()
}
