package main

import (
	"fmt"
	"html"
	"strings"
)

// A canvas collects the elements of one picture. Lengths are CSS pixels.
type canvas struct {
	height int
	title  string
	body   strings.Builder
}

// width is that of every picture. On the screen of a phone, a picture is scaled to some 360
// pixels: its text must then be large enough to read.
const width = 480

const style = `
text { font: 16px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
text.small { font-size: 15px; fill: var(--soft); }
text.strong { font-weight: 600; }
text.code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 16px; }
text.on { fill: var(--on); }
svg { --ink: #1f2328; --soft: #59636e; --line: #818b98; --page: #ffffff; --box: #f6f8fa; --on: #ffffff;
  --good: #1a7f37; --server: #0969da; --bad: #cf222e; --wait: #9a6700; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0f6fc; --soft: #9198a1; --line: #656c76; --page: #0d1117; --box: #151b23; --on: #0d1117;
    --good: #3fb950; --server: #4493f8; --bad: #f85149; --wait: #d29922; }
}
.page { fill: var(--page); }
.box { fill: var(--box); stroke: var(--line); }
.axis { stroke: var(--line); fill: none; }
.guide { stroke: var(--line); stroke-dasharray: 3 4; fill: none; }
.good { fill: var(--good); } .server { fill: var(--server); } .bad { fill: var(--bad); } .wait { fill: var(--wait); }
.arrow { stroke: var(--ink); stroke-width: 1.5; fill: none; marker-end: url(#head); }
.arrow.lost { stroke: var(--bad); stroke-dasharray: 5 4; }
.cross { stroke: var(--bad); stroke-width: 2.5; fill: none; }
#head path { fill: var(--ink); }
`

func newCanvas(height int, title string) *canvas {
	return &canvas{height: height, title: title}
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

// text writes s with its baseline at y. anchor is start, middle or end.
func (c *canvas) text(x, y int, class, anchor, s string) {
	c.add(`<text x="%d" y="%d" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(s))
}

// bar draws a rounded bar with a label in its middle.
func (c *canvas) bar(x1, x2, y int, class, label string) {
	c.add(`<rect x="%d" y="%d" width="%d" height="26" rx="5" class="%s"/>`, x1, y, x2-x1, class)
	if label != "" {
		c.text((x1+x2)/2, y+18, "on", "middle", label)
	}
}

// box draws a frame with lines of text in it.
func (c *canvas) box(x, y, width, height int, lines ...string) {
	c.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" class="box"/>`, x, y, width, height)
	top := y + height/2 - (len(lines)-1)*9 + 5
	for i, line := range lines {
		kind := "small"
		if i == 0 {
			kind = "strong"
		}
		c.text(x+width/2, top+i*18, kind, "middle", line)
	}
}

func (c *canvas) line(x1, y1, x2, y2 int, class string) {
	c.add(`<path d="M%d %dL%d %d" class="%s"/>`, x1, y1, x2, y2, class)
}

func (c *canvas) arrow(x1, y1, x2, y2 int) { c.line(x1, y1, x2, y2, "arrow") }

// lost draws an arrow that ends in a cross half-way.
func (c *canvas) lost(x1, y1, x2, y2 int) {
	x, y := (x1+x2)/2, (y1+y2)/2
	c.add(`<path d="M%d %dL%d %d" class="axis" stroke-dasharray="5 4"/>`, x1, y1, x, y)
	c.cross(x, y)
}

func (c *canvas) cross(x, y int) {
	c.add(`<path d="M%d %dl12 12m0 -12l-12 12" class="cross"/>`, x-6, y-6)
}

// lane draws the name of a participant and its time line.
func (c *canvas) lane(y int, name string, x1 int) {
	c.text(12, y+5, "strong", "start", name)
	c.line(x1, y, width-16, y, "axis")
}

// svg returns the whole file.
func (c *canvas) svg() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">
<title>%[3]s</title>
<style>%[4]s</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
<rect width="%[1]d" height="%[2]d" class="page"/>
%[5]s</svg>
`, width, c.height, html.EscapeString(c.title), style, c.body.String())
}
