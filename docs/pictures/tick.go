package main

// tick shows the states of one scheduled instant of a job.
func tick() string {
	c := newCanvas(380, "The life of a tick: claimed once, taken over after a death, ended once")
	c.box(16, 16, 180, 54, "due", "12:00 by Redis")
	c.box(330, 16, 134, 54, "skipped", "with its reason")
	c.box(16, 154, 180, 54, "running", "one holder, one token")
	c.box(16, 308, 180, 54, "open", "holder died or left")
	c.box(330, 104, 134, 44, "succeeded")
	c.box(330, 180, 134, 44, "failed")
	c.box(330, 308, 134, 54, "unknown", "effect unknown")

	c.arrow(196, 43, 326, 43)
	c.arrow(60, 70, 60, 150)
	c.text(70, 116, "small", "start", "first claim wins")
	c.arrow(196, 166, 326, 128)
	c.text(200, 132, "small", "start", "returned nil")
	c.arrow(196, 190, 326, 200)
	c.text(206, 216, "small", "start", "error, attempts")
	c.text(206, 234, "small", "start", "used up")
	c.arrow(30, 208, 30, 304)
	c.text(38, 262, "small", "start", "lease lost")
	c.arrow(130, 308, 130, 212)
	c.text(140, 270, "small", "start", "taken over: attempt + 1, greater token")
	c.arrow(196, 340, 326, 340)
	c.text(204, 332, "small", "start", "attempts")
	c.text(204, 360, "small", "start", "used up")
	return c.svg()
}
