package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// follow prints all things, and then each that changes, until ctx ends. It looks for new names
// at every fifth look, because that costs more.
func (g *getting) follow(ctx context.Context, names []string) error {
	known := map[string]string{}
	fixed := len(names) > 0
	failure := "" // that was printed last
	for look := 0; ; look++ {
		var changed []item
		var items []item
		var err error
		switch {
		case look == 0 || !fixed && look%5 == 0:
			items, err = g.items(ctx, names)
		default:
			var found []*item
			names := sortedKeys(known)
			found, err = g.readAll(ctx, g.kind, names)
			for i, it := range found {
				if it != nil {
					items = append(items, *it)
				} else if err == nil && known[names[i]] != ended {
					items = append(items, item{name: names[i], cells: []string{ended}, data: map[string]string{"name": names[i], "state": ended}, state: ended})
				}
			}
		}
		if _, partial := errors.AsType[*partialError](err); err != nil && !partial && (look == 0 || !lockcore.IsTemporary(err)) {
			return err
		}
		for _, it := range items {
			if state, seen := known[it.name]; !seen || state != it.state {
				known[it.name] = it.state
				changed = append(changed, it)
			}
		}
		if err := g.printChanges(g.chosen(changed), look == 0); err != nil {
			return err
		}
		_, text := g.verdict(ctx, err)
		if text != "" && text != failure {
			fmt.Fprintf(g.Stderr, "noonctl: %s\n", text)
		}
		failure = text
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(g.interval):
		}
	}
}

// ended is the state of a thing that does not exist any more.
const ended = "ended"

func (g *getting) printChanges(items []item, first bool) error {
	switch g.output {
	case asJSON:
		for _, it := range items {
			if err := writeJSON(g.out, it.data, true); err != nil {
				return err
			}
		}
		return nil
	case asYAML:
		for _, it := range items {
			if _, err := io.WriteString(g.out, "---\n"); err != nil {
				return err
			}
			if err := writeYAML(g.out, it.data); err != nil {
				return err
			}
		}
		return nil
	case asName:
		return g.print(items, false, false)
	}
	if len(items) == 0 {
		return nil
	}
	for i := range items {
		for len(items[i].cells) < len(g.titles)-1 {
			items[i].cells = append(items[i].cells, "")
		}
	}
	return g.print(items, false, first)
}
