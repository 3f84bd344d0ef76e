package peers_test

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A plot draws the lines of a table whose columns are numbers. Both axes are logarithmic.
type plot struct {
	file, title, of, unit string
	table                 *table
}

// String returns the picture in Markdown.
func (p *plot) String() string { return fmt.Sprintf("![%s](%s)\n", p.title, p.file) }

const plotStyle = `
text { font: 15px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
text.soft { fill: var(--soft); }
svg { --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --page: #ffffff;
  --c0: #0969da; --c1: #1a7f37; --c2: #cf222e; --c3: #9a6700; --c4: #8250df; --c5: #59636e; --c6: #bf3989; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0f6fc; --soft: #9198a1; --line: #3d444d; --page: #0d1117;
    --c0: #4493f8; --c1: #3fb950; --c2: #f85149; --c3: #d29922; --c4: #ab7df8; --c5: #9198a1; --c6: #db61a2; }
}
.page { fill: var(--page); }
.grid { stroke: var(--line); fill: none; }
`

func (p *plot) svg() string {
	const width, left, right, top, high = 480, 66, 448, 44, 250
	var xs, ys []float64
	value := map[[2]string]float64{}
	for at, samples := range p.table.cells {
		v := median(slices.Clone(samples))
		if v <= 0 {
			continue
		}
		value[at] = v
		ys = append(ys, v)
	}
	for _, column := range p.table.columns {
		xs = append(xs, number(column))
	}
	least, most := math.Floor(math.Log10(slices.Min(ys))), math.Ceil(math.Log10(slices.Max(ys)))
	first, last := math.Log10(slices.Min(xs)), math.Log10(slices.Max(xs))
	x := func(v float64) float64 { return left + (right-left)*(math.Log10(v)-first)/(last-first) }
	y := func(v float64) float64 { return top + high*(most-math.Log10(v))/(most-least) }

	var s strings.Builder
	for e := least; e <= most; e++ {
		at := y(math.Pow(10, e))
		fmt.Fprintf(&s, `<path d="M%d %.1fH%d" class="grid"/>`+"\n", left, at, right)
		fmt.Fprintf(&s, `<text x="%d" y="%.1f" class="soft" text-anchor="end">%s</text>`+"\n", left-8, at+5, figure(math.Pow(10, e)))
	}
	for i, column := range p.table.columns {
		fmt.Fprintf(&s, `<path d="M%.1f %dV%d" class="grid"/>`+"\n", x(xs[i]), top, top+high)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" class="soft" text-anchor="middle">%s</text>`+"\n", x(xs[i]), top+high+20, column)
	}
	fmt.Fprintf(&s, `<text x="12" y="24">%s</text>`+"\n", html.EscapeString(p.unit))
	fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", right, top+high+42, html.EscapeString(p.of))
	under, abreast := top+high+64, 3 // names in a row
	if slices.ContainsFunc(p.table.lines, func(name string) bool { return len(name) > 16 }) {
		abreast = 1
	}
	for i, line := range p.table.lines {
		var points []string
		color := fmt.Sprintf("var(--c%d)", i%7)
		for j, column := range p.table.columns {
			v, ok := value[[2]string{line, column}]
			if !ok {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(xs[j]), y(v)))
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3.5" style="fill:%s"/>`+"\n", x(xs[j]), y(v), color)
		}
		fmt.Fprintf(&s, `<polyline points="%s" style="fill:none;stroke-width:2;stroke:%s"/>`+"\n", strings.Join(points, " "), color)
		at, on := 24+(right-24)/abreast*(i%abreast), under+22*(i/abreast)
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="14" height="5" style="fill:%s"/>`+"\n", at, on-8, color)
		fmt.Fprintf(&s, `<text x="%d" y="%d">%s</text>`+"\n", at+20, on, html.EscapeString(line))
	}
	height := under + 22*((len(p.table.lines)-1)/abreast) + 16
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">
<title>%[3]s</title>
<style>%[4]s</style>
<rect width="%[1]d" height="%[2]d" class="page"/>
%[5]s</svg>
`, width, height, html.EscapeString(p.title), plotStyle, s.String())
}

// number reads what figure has written.
func number(s string) float64 {
	v, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
	if err != nil {
		return math.NaN()
	}
	return v
}
