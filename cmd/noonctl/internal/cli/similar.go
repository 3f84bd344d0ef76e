package cli

import (
	"slices"
	"strings"

	"github.com/noonlock/noonlock/internal/input"
)

// similar returns up to three names that a user may have meant, the most similar first.
func similar(name string, known []string) []string {
	type near struct {
		name     string
		distance int
	}
	var all []near
	lower := strings.ToLower(name)
	for _, k := range known {
		candidate := strings.ToLower(k)
		d := input.Distance(lower, candidate)
		switch {
		case k == name: // its keys are incomplete
			continue
		case d <= max(1, len([]rune(name))/3):
		case len(name) >= 3 && (strings.Contains(candidate, lower) || strings.Contains(lower, candidate)):
			d = 1000 + d // after all misspelt names
		default:
			continue
		}
		all = append(all, near{k, d})
	}
	slices.SortStableFunc(all, func(a, b near) int { return a.distance - b.distance })
	var names []string
	for _, n := range all[:min(3, len(all))] {
		names = append(names, n.name)
	}
	return names
}
