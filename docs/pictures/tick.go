package main

// tick shows the states of one scheduled instant of a job.
func tick() string {
	c := newCanvas(350, "The life of a tick: claimed once, taken over after a death, ended once")
	c.box(20, 120, 130, 60, "due", "12:00 by Redis")
	c.box(290, 120, 170, 60, "running", "one holder, one token")
	c.box(290, 260, 170, 60, "open", "holder died or left")
	c.box(660, 20, 170, 50, "succeeded")
	c.box(660, 125, 170, 50, "failed")
	c.box(660, 265, 170, 50, "unknown", "effect unknown")
	c.box(20, 20, 130, 50, "skipped", "with its reason")

	c.arrow(150, 150, 286, 150)
	c.text(218, 142, "small", "middle", "first claim wins")
	c.arrow(85, 120, 85, 74)
	c.arrow(460, 138, 656, 50)
	c.text(548, 84, "small", "end", "work returned nil")
	c.arrow(460, 150, 656, 150)
	c.text(560, 142, "small", "middle", "error, attempts used up")
	c.arrow(350, 180, 350, 256)
	c.text(340, 222, "small", "end", "lease lost")
	c.arrow(410, 260, 410, 184)
	c.text(420, 214, "small", "start", "taken over: attempt + 1,")
	c.text(420, 232, "small", "start", "greater token")
	c.arrow(460, 290, 656, 290)
	c.text(560, 282, "small", "middle", "attempts used up")
	return c.svg()
}
