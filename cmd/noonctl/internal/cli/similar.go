package cli

import (
	"slices"
	"strings"
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
		d := distance(lower, candidate)
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

// distance returns how many characters must be inserted, deleted, replaced or exchanged with
// their neighbour to turn one text into the other.
func distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
