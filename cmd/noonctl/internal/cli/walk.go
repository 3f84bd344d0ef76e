package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// labels are the names of fields for people, where those in JSON do not say enough.
var labels = map[string]string{
	"acquired": "since", "acts": "acts of operators", "attempts": "attempts that failed", "candidates": "candidates, the next leader first", "definitions": "definitions of the job",
	"job": "name", "last": "last tick", "next": "next tick", "open": "runs that have not ended",
	"outcome": "last outcome", "pending": "waiting for their instants", "released": "resigned",
	"releases": "released by force, the last one first", "waiters": "waiters, the next one first",
}

func labelOf(key string) string {
	text := strings.ReplaceAll(key, "_", " ")
	if label, ok := labels[key]; ok {
		text = label
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// walk prints the JSON of values for people: a line for each field, and then a table for each list.
// now is the time of the server.
func (a *app) walk(now time.Time, values ...any) error {
	type list struct {
		title string
		rows  []*yaml.Node
	}
	var lists []list
	lines := &table{titles: []string{"", ""}}
	for _, v := range values {
		object, err := nodeOf(v)
		if err != nil {
			return err
		}
		for field := range slices.Chunk(object.Content, 2) {
			key, value := field[0].Value, field[1]
			if value.Kind == yaml.SequenceNode {
				lists = append(lists, list{labelOf(key), value.Content})
				continue
			}
			text := cellOf(value)
			if at, err := time.Parse(time.RFC3339, value.Value); err == nil && text != "" {
				text += " (" + relative(at, now) + ")"
			}
			if label := labelOf(strings.TrimSuffix(key, "_ms")); text != "" && key != "now" {
				lines.add(label+":", inUnit(key, text))
			}
		}
	}
	lines.write(a.out, "", 0, false)
	for _, l := range lists {
		a.walkList(l.title, l.rows)
	}
	return a.out.Err()
}

// walkList prints a table of objects, and one for each list that they have.
func (a *app) walkList(title string, rows []*yaml.Node) {
	if len(rows) == 0 {
		return
	}
	t := &table{}
	inner := map[string][]*yaml.Node{}
	var names []string
	cells := make([]map[string]string, len(rows))
	for i, row := range rows {
		cells[i] = map[string]string{}
		var begin []*yaml.Node // the first field, which names the row in the tables of its lists
		for field := range slices.Chunk(row.Content, 2) {
			key, value := field[0].Value, field[1]
			switch {
			case value.Kind == yaml.SequenceNode:
				if !slices.Contains(names, key) {
					names = append(names, key)
				}
				for _, one := range value.Content {
					one.Content = append(slices.Clone(begin), one.Content...)
					inner[key] = append(inner[key], one)
				}
				continue
			case key == "triggered":
				if value.Value == "true" { // as RunID.Name
					cells[i]["TICK"] = "trigger/" + cells[i]["TICK"]
					begin[1].Value = cells[i]["TICK"]
				}
				continue
			case begin == nil:
				begin = []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, {Kind: yaml.ScalarNode, Value: value.Value}}
			}
			column := strings.ToUpper(strings.ReplaceAll(strings.TrimSuffix(key, "_ms"), "_", " "))
			if !slices.Contains(t.titles, column) {
				t.titles = append(t.titles, column)
			}
			cells[i][column] = inUnit(key, cellOf(value))
		}
	}
	for _, row := range cells {
		texts := make([]string, len(t.titles))
		for i, column := range t.titles {
			texts[i] = row[column]
		}
		t.add(texts...)
	}
	fmt.Fprintf(a.out, "%s:\n", title)
	t.write(a.out, "  ", a.columns(), true)
	for _, name := range names {
		a.walkList(title+": "+labelOf(name), inner[name])
	}
}

// cellOf returns a value in one line.
func cellOf(value *yaml.Node) string {
	if value.Kind == yaml.MappingNode {
		var parts []string
		for field := range slices.Chunk(value.Content, 2) {
			key := field[0].Value
			if text := cellOf(field[1]); text != "" && !slices.Contains([]string{"id", "tick", "triggered"}, key) {
				parts = append(parts, key+" "+text)
			}
		}
		return strings.Join(parts, ", ")
	}
	if at, err := time.Parse(time.RFC3339, value.Value); err == nil {
		return instant(at)
	}
	switch {
	case value.Tag == "!!bool" && value.Value == "true":
		return "yes"
	case value.Tag == "!!bool":
		return "no"
	case value.Tag == "!!null":
		return ""
	}
	return oneLine(value.Value)
}

// inUnit returns the text of a value whose key names a unit.
func inUnit(key, text string) string {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && strings.HasSuffix(key, "_ms") {
		return span(time.Duration(n) * time.Millisecond)
	}
	return text
}
