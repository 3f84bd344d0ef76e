package overview

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Cell is one fact about a thing: a label, and a text or an instant. A Cell without text and instant is not shown.
type Cell struct {
	Label string `json:"l"`
	Text  string `json:"t,omitempty"`
	At    int64  `json:"at,omitempty"` // ms since 1970, by the server's clock
	Of    int64  `json:"of,omitempty"` // length in ms of the lease that ends at At
	Class string `json:"c,omitempty"`  // style on the page
}

// A Row is an element of a List. All rows of a List have the same labels.
type Row struct {
	Cells []Cell `json:"cells"`

	// The other fields are set for runs.
	Key   int64  `json:"k,omitempty"`    // singleton.RunID.Key
	Class string `json:"c,omitempty"`    // outcome, running or waiting
	Verb  string `json:"verb,omitempty"` // rerun or cancel, if possible
	Took  *int64 `json:"took,omitempty"` // duration in ms
	Late  *int64 `json:"late,omitempty"` // ms from the tick to the first attempt
}

// A List is one of the lists of a Description.
type List struct {
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
	More  int    `json:"more,omitempty"` // number of omitted rows
}

// A Description is the content of noonctl describe, and of the page of a job.
type Description struct {
	Lines []Cell `json:"lines"`
	Lists []List `json:"lists"`
}

// cell returns a Cell, which is not shown if the value is zero.
func cell(label string, value any, class ...string) Cell {
	c := Cell{Label: label, Class: strings.Join(class, " ")}
	switch v := value.(type) {
	case string:
		c.Text = v
	case int:
		c.Text = strings.TrimPrefix(strconv.Itoa(v), "0")
	case uint64:
		c.Text = strings.TrimPrefix(strconv.FormatUint(v, 10), "0")
	case bool:
		c.Text = either(v, "yes", "")
	case time.Duration:
		if v > 0 {
			c.Text = Span(v)
		}
	case time.Time: // Relative shows its distance from now; Instant(v) is a fixed text
		c.At = max(0, v.UnixMilli())
	}
	return c
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// listOf returns a List with a row for each element.
func listOf[T any](title string, all []T, cells func(T) []Cell) List {
	l := List{Title: title}
	for _, element := range all {
		l.Rows = append(l.Rows, Row{Cells: cells(element)})
	}
	return l
}

// String returns the text or the instant.
func (c Cell) String() string {
	if c.At > 0 {
		return Instant(time.UnixMilli(c.At))
	}
	return c.Text
}

// Relative returns the text, or the distance of the instant from now.
func (c Cell) Relative(now time.Time) string {
	switch d := time.UnixMilli(c.At).Sub(now); {
	case c.At == 0:
		return c.Text
	case d > 0:
		return "in " + Span(d)
	default:
		return Span(-d) + " ago"
	}
}

// By returns the name of an operator with the reason.
func By(name, reason string) string { return strings.TrimSuffix(name+": "+reason, ": ") }

// Instant returns an instant in UTC, with milliseconds unless they are zero. The zero Time gives "".
func Instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// Span returns a rounded duration.
func Span(d time.Duration) string {
	var text string
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		text = d.Round(time.Second).String()
	case d < 48*time.Hour:
		text = d.Round(time.Minute).String()
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
	for _, zero := range []string{"m0s", "h0m"} { // 5m0s becomes 5m
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
