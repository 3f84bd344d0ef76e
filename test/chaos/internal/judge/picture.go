package judge

import (
	"fmt"
	"io"
	"slices"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

const style = `<style>
text { font: 12px sans-serif; fill: #24292f }
.axis { stroke: #8c959f; stroke-opacity: .4 }
.fault { fill: #cf222e; fill-opacity: .18 }
.lease { fill: #0969da }
.wait { fill: #8c959f; fill-opacity: .55 }
.lost { fill: #bc4c00 }
.name { font-size: 10px; fill: #a40e26 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.fault { fill: #ff7b72; fill-opacity: .26 }
.lease { fill: #58a6ff }
.lost { fill: #ffa657 }
.name { fill: #ffb1aa }
}
</style>
`

// Draw writes an SVG of one unit in a history, from an instant for some seconds: which worker had it when, who waited,
// and which faults were active.
func Draw(w io.Writer, events []history.Event, unit string, from int64, seconds int) {
	r := read(events)
	const left, top, height, width = 62, 8, 44, 900
	to := from + int64(seconds)*1e9
	x := func(t int64) float64 { return left + width*float64(min(max(t, from), to)-from)/float64(to-from) }
	box := func(class string, y, height float64, a, b int64, text string) {
		if b >= from && a <= to {
			fmt.Fprintf(w, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`+"\n",
				class, x(a), y, max(x(b)-x(a), 0.8), height, text)
		}
	}
	label := func(class string, x, y float64, text string) {
		fmt.Fprintf(w, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, text)
	}
	rows := []string{"servers"}
	for _, c := range r.calls {
		if name := history.Worker(c.W); c.unit() == unit && !slices.Contains(rows, name) {
			rows = append(rows, name)
		}
	}
	slices.Sort(rows)
	bottom := float64(top + height*len(rows))
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f">`+"\n%s", left+width+10, bottom+44, style)
	for s := range seconds + 1 {
		at := x(from + int64(s)*1e9)
		fmt.Fprintf(w, `<path class="axis" d="M%.1f %d V%.0f"/>`+"\n", at, top, bottom+4)
		label("", at-4, bottom+17, fmt.Sprint(s))
	}
	label("", left+width-4, bottom+17, " s")
	for i, row := range rows {
		y := float64(top + height*i)
		label("", 4, y+30, row)
		next := 0.0 // where the text before ends
		for _, f := range r.faults {
			if f.Target == row || f.isServer() && row == "servers" {
				box("fault", y+2, height-4, f.T, f.end, f.Fault)
				if at := x(f.T) + 2; f.T >= from && f.T <= to && at >= next {
					label("name", at, y+12, f.Fault)
					next = at + 5.3*float64(len(f.Fault)) + 4
				}
			}
		}
		for _, c := range r.calls {
			if c.unit() != unit || history.Worker(c.W) != row {
				continue
			}
			box("wait", y+32, 3, c.ask, c.answer, "waits")
			if c.granted && c.believed() > c.answer {
				box("lease", y+18, 20, c.answer, c.believed(), fmt.Sprint("token ", c.Token))
			}
			if c.lost != "" {
				box("lost", y+16, 24, c.over, c.over+3e7, c.lost)
			}
		}
	}
	at := float64(left)
	for _, key := range []string{"lease", "wait", "lost", "fault"} {
		box(key, bottom+28, 10, from+int64(at-left)*int64(seconds)*1e9/width, from+int64(at-left+14)*int64(seconds)*1e9/width, key)
		text := map[string]string{
			"lease": "has the lock", "wait": "waits for it", "lost": "the library reports the end of a lease", "fault": "fault",
		}[key]
		label("", at+20, bottom+37, text)
		at += 40 + 6.2*float64(len(text))
	}
	fmt.Fprintln(w, "</svg>")
}
