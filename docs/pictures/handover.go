package main

// handover shows the three commands of a hand-over.
func handover() string {
	c := newCanvas(330, "A hand-over: three commands, for any number of waiters")
	const holder, server, next, third = 60, 140, 220, 290
	c.lane(holder, "holder", 110)
	c.lane(server, "Redis", 110)
	c.lane(next, "waiter 1", 110)
	c.lane(third, "others", 110)

	c.bar(110, 300, holder-13, "good", "holds, token 41")
	c.bar(110, 660, next-13, "wait", "waits, sends nothing")
	c.bar(110, 840, third-13, "wait", "wait, send nothing")
	c.arrow(300, holder, 350, server-8)
	c.text(336, holder+32, "small", "start", "1  unlock")
	c.add(`<rect x="350" y="%d" width="170" height="26" rx="5" class="server"/>`, server-13)
	c.text(435, server+5, "on", "middle", "grants to the first")
	c.arrow(520, server+8, 548, next-14)
	c.text(526, server+56, "small", "end", "message: granted")
	c.arrow(580, next-14, 612, server+2)
	c.arrow(612, server+2, 644, next-14)
	c.text(612, server-8, "small", "middle", "2  confirm")
	c.bar(644, 840, next-13, "good", "holds, token 42")
	c.line(300, holder, 840, holder, "axis")
	c.arrow(700, holder, 732, server-6)
	c.text(724, holder+32, "small", "start", "3  queue again")
	return c.svg()
}
