package main

import "strings"

// A room is one box of the picture of the packages.
type room struct {
	x, width int
	does     string
	packages []string // paths below the module's; the last part of each is its name in the box
}

// layers returns the rooms from the top layer to the lowest one. TestImportsGoDown compares
// them with the imports of the code.
func layers() [][]room {
	return [][]room{
		{
			{20, 400, "programs", []string{"examples/lottery", "examples/leader", "examples/quickstart"}},
			{440, 400, "client-go's locks on Redis", []string{"adapters/clientgo", "adapters/clientgo/internal/cas"}},
		},
		{
			{20, 200, "leader election", []string{"election"}},
			{240, 390, "jobs, daemons, tasks done once", []string{"singleton"}},
			{650, 190, "probes", []string{"healthz"}},
		},
		{
			{20, 200, "the leader's record", []string{"election/internal/record"}},
			{240, 165, "the history of a job", []string{"singleton/internal/ledger"}},
			{415, 215, "calendars", []string{"singleton/schedule", "singleton/internal/ticks"}},
			{650, 190, "fenced transactions", []string{"singleton/sqlonce"}},
		},
		{
			{20, 610, "locks, leases with fencing tokens, a queue without polling", []string{"lockcore"}},
			{650, 190, "campaign, work, release", []string{"internal/holding"}},
		},
		{
			{20, 295, "validity and renewal; no Redis", []string{"internal/lease"}},
			{335, 295, "lockcore for the layers above", []string{"internal/engine"}},
			{650, 190, "URLs of Redis, for programs", []string{"redisurl"}},
		},
		{{335, 295, "connections, scripts, messages", []string{"internal/wire"}}},
		{{20, 820, "small parts that several packages share", []string{
			"internal/input", "internal/logqueue", "internal/readiness", "internal/registry", "internal/retry", "internal/stopping",
		}}},
	}
}

// floors shows the packages in layers.
func floors() string {
	const height, gap = 54, 14
	all := layers()
	c := newCanvas(len(all)*(height+gap)+50, "The packages in layers: each imports only packages below it")
	for i, rooms := range all {
		for _, r := range rooms {
			var names []string
			for _, p := range r.packages {
				if at := strings.LastIndex(p, "/internal/"); at > 0 {
					p = p[at+1:]
				}
				names = append(names, strings.TrimPrefix(strings.TrimPrefix(p, "examples/"), "singleton/"))
			}
			title := strings.Join(names, ", ")
			if strings.HasPrefix(title, "internal/input") {
				title = "internal/ input, logqueue, readiness, registry, retry, stopping"
			}
			c.box(r.x, 16+i*(height+gap), r.width, height, title, r.does)
		}
	}
	c.text(430, len(all)*(height+gap)+36, "small", "middle", "A package imports only packages of lower layers, or of its own box.")
	return c.svg()
}
