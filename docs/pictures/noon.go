package main

// noon shows the lottery's noon with a replica that dies in the middle of its draw.
func noon() string {
	c := newCanvas(390, "The noon draw: a replica is killed, another one finishes, the rows are written once")
	const one, two, three, database = 70, 150, 230, 330
	for i, name := range []string{"replica 1", "replica 2", "replica 3"} {
		c.lane(one+80*i, name, 110)
	}
	c.lane(database, "database", 110)

	c.line(200, 40, 200, 350, "guide")
	c.text(200, 32, "strong", "middle", "12:00")

	c.bar(110, 200, one-13, "wait", "waits")
	c.bar(110, 200, two-13, "wait", "waits")
	c.bar(110, 200, three-13, "wait", "waits")
	c.bar(206, 380, two-13, "good", "attempt 1, token 41")
	c.cross(386, two)
	c.text(400, two+22, "small", "start", "killed; rolled back")
	c.bar(206, 540, one-13, "wait", "claim refused: replica 2 holds this tick")
	c.bar(206, 540, three-13, "wait", "claim refused: replica 2 holds this tick")
	c.line(540, 40, 540, 350, "guide")
	c.text(540, 32, "strong", "middle", "lease expired")
	c.bar(546, 720, three-13, "good", "attempt 2, token 42")
	c.bar(546, 840, one-13, "wait", "claim refused")
	c.arrow(715, three+14, 730, database-16)
	c.bar(640, 840, database-13, "server", "10 winners + marker")
	c.text(740, database+36, "small", "middle", "one transaction")
	c.text(120, database+36, "small", "start", "A late write with token 41 would be refused: the fence is at 42.")
	return c.svg()
}
