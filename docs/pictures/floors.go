package main

import "strings"

// A room is one box of the picture of the packages.
type room struct {
	does     string
	packages []string // paths below the module's; the last part of each is its name in the box
}

// layers returns the rooms from the top layer to the lowest one. TestImportsGoDown compares
// them with the imports of the code.
func layers() [][]room {
	return [][]room{
		{
			{"programs", []string{"examples/lottery", "examples/leader", "examples/quickstart", "cmd/noonctl"}},
			{"client-go's locks on Redis", []string{"adapters/clientgo", "adapters/clientgo/internal/cas"}},
		},
		{
			{"a web page about all of them", []string{"statusz", "internal/overview"}},
			{"what Redis must be like for all of them", []string{"doctor"}},
		},
		{
			{"leader election", []string{"election"}},
			{"jobs, daemons, tasks done once", []string{"singleton"}},
			{"probes", []string{"healthz"}},
		},
		{
			{"the leader's record", []string{"election/internal/record"}},
			{"the history of a job", []string{"singleton/internal/ledger"}},
			{"calendars", []string{"singleton/schedule", "singleton/internal/ticks"}},
			{"fenced transactions", []string{"singleton/sqlonce"}},
		},
		{
			{"locks for users: their types, texts and scripts", []string{"lockcore"}},
			{"campaign, work, release", []string{"internal/holding"}},
		},
		{{"what holds a name: acquire, wait, hold, release", []string{"internal/lock"}}},
		{
			{"validity and renewal; no Redis", []string{"internal/lease"}},
			{"the rules of a majority of servers; no Redis", []string{"internal/quorum"}},
			{"URLs of Redis and certificates, for programs", []string{"internal/certs", "internal/tlsprobe", "redisurl"}},
		},
		{{"connections, scripts, messages", []string{"internal/wire"}}},
		{{"small parts that several packages share", []string{
			"internal/input", "internal/logqueue", "internal/output", "internal/readiness", "internal/registry", "internal/retry", "internal/stopping",
		}}},
	}
}

// floors shows the packages in layers. A layer is a frame around its boxes.
func floors() string {
	const height, gap = 46, 6
	c := newCanvas(0, "The packages in layers: each imports only packages below it")
	y := 16
	for _, rooms := range layers() {
		c.add(`<rect x="10" y="%d" width="%d" height="%d" rx="8" class="axis"/>`, y, width-20, len(rooms)*(height+gap)+gap)
		for _, r := range rooms {
			var names []string
			for _, p := range r.packages {
				if at := strings.LastIndex(p, "/internal/"); at > 0 {
					p = p[at+1:]
				}
				names = append(names, strings.TrimPrefix(strings.TrimPrefix(p, "examples/"), "singleton/"))
			}
			title := strings.Join(names, ", ")
			if len(names) > 3 {
				title, r.does = r.does, strings.ReplaceAll(title, "internal/", "")
			}
			c.box(18, y+gap, width-36, height, title, r.does)
			y += height + gap
		}
		y += 3 * gap
	}
	c.text(width/2, y+14, "small", "middle", "A package imports only packages of lower layers,")
	c.text(width/2, y+34, "small", "middle", "or of its own box.")
	c.height = y + 50
	return c.svg()
}
