package main

// noon shows the lottery's noon with a replica that dies in the middle of its draw.
func noon() string {
	c := newCanvas(420, "The noon draw: a replica is killed, another one finishes, the rows are written once")
	const one, two, three, database = 70, 150, 230, 320
	for i, name := range []string{"replica 1", "replica 2", "replica 3"} {
		c.lane(one+80*i, name, 96)
	}
	c.lane(database, "database", 104)

	c.line(154, 40, 154, 350, "guide")
	c.text(154, 32, "strong", "middle", "12:00")

	c.bar(96, 152, one-13, "wait", "waits")
	c.bar(96, 152, two-13, "wait", "waits")
	c.bar(96, 152, three-13, "wait", "waits")
	c.bar(157, 240, two-13, "good", "token 41")
	c.cross(248, two)
	c.text(160, two+32, "small", "start", "killed; rolled back")
	c.bar(157, 308, one-13, "wait", "claim refused")
	c.bar(157, 308, three-13, "wait", "claim refused")
	c.line(311, 40, 311, 350, "guide")
	c.text(311, 32, "strong", "middle", "lease expired")
	c.bar(314, 400, three-13, "good", "token 42")
	c.bar(314, 464, one-13, "wait", "claim refused")
	c.arrow(392, three+14, 402, database-16)
	c.bar(318, 464, database-13, "server", "winners + marker")
	c.text(391, database+34, "small", "middle", "one transaction")
	c.text(16, database+66, "small", "start", "A late write with token 41 would be refused:")
	c.text(16, database+86, "small", "start", "the fence is at 42.")
	return c.svg()
}
