package judge

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// Draw writes an SVG of one unit in a history, from an instant for some seconds: which worker had it when, who waited,
// and which faults were active. style is the style of all pictures.
func Draw(w io.Writer, style string, events []history.Event, unit string, from int64, seconds int) {
	r := read(events)
	const left, width, height, title = 64, 388, 54, "Who had a lock when, while processes, their networks and the server had faults"
	to := from + int64(seconds)*1e9
	x := func(t int64) float64 { return left + width*float64(min(max(t, from), to)-from)/float64(to-from) }
	shapes := map[string]string{} // paths by class
	box := func(class string, x, y, width, height float64) {
		shapes[class] += fmt.Sprintf("M%.1f %.0fh%.1fv%.0fh-%.1fz", x, y, width, height, width)
	}
	span := func(class string, y, height float64, a, b int64) {
		if b >= from && a <= to {
			box(class, x(a), y, max(x(b)-x(a), 0.8), height)
		}
	}
	var texts strings.Builder
	label := func(x, y float64, text string) {
		fmt.Fprintf(&texts, `<text class="small" x="%.0f" y="%.0f">%s</text>`+"\n", x, y, text)
	}
	rows := []string{"server"}
	for _, c := range r.calls {
		if name := history.Worker(c.W); c.unit() == unit && !slices.Contains(rows, name) {
			rows = append(rows, name)
		}
	}
	slices.Sort(rows)
	bottom := float64(height * len(rows))
	for s := 0; s <= seconds; s += 2 {
		at := x(from + int64(s)*1e9)
		box("axis", at, 0, 0.1, bottom+4)
		label(at-9, bottom+20, fmt.Sprint(s, " s"))
	}
	for i, row := range rows {
		y := float64(height * i)
		label(8, y+40, row)
		next := 0.0 // where the text before ends
		for _, f := range r.faults {
			if f.Target != row && (!f.isServer() || row != "server") {
				continue
			}
			span("fault", y+2, height-4, f.T, f.end)
			at, size := x(f.T)+2, 7.6*float64(len(f.Fault))
			if isLong := f.end-f.T > 2e8; isLong && f.T >= from && at >= next && at+size < left+width {
				label(at, y+17, f.Fault)
				next = at + size
			}
		}
		for _, c := range r.calls {
			if c.unit() != unit || history.Worker(c.W) != row {
				continue
			}
			span("wait", y+36, 3, c.ask, r.answered(c))
			if c.granted && c.believed() > c.answer {
				span("server", y+26, 22, c.answer, c.believed())
			}
			if c.lost != "" {
				span("bad", y+24, 26, c.over, c.over+5e7)
			}
		}
	}
	keys := [][2]string{
		{"server", "has the lock"}, {"wait", "waits for it"}, {"bad", "the library reports the end"}, {"fault", "a fault"},
	}
	for i, key := range keys {
		at, y := float64(8+252*(i%2)), bottom+36+24*float64(i/2)
		box(key[0], at, y, 14, 12)
		label(at+20, y+11, key[1])
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 %.0f" width="480" height="%.0f" role="img" `+
		`aria-label="%s">`+"\n<title>%s</title>\n<style>%s</style>\n", bottom+88, bottom+88, title, title, style)
	fmt.Fprintf(w, `<rect class="page" width="480" height="%.0f"/>`+"\n", bottom+88)
	fmt.Fprintf(w, `<path class="bad" opacity=".2" d="%s"/>`+"\n", shapes["fault"])
	opacity := map[string]string{"axis": ".3", "wait": ".6", "server": "1", "bad": "1"}
	for _, class := range []string{"axis", "wait", "server", "bad"} {
		fmt.Fprintf(w, `<path class="%s" opacity="%s" d="%s"/>`+"\n", class, opacity[class], shapes[class])
	}
	fmt.Fprint(w, texts.String(), "</svg>\n")
}
