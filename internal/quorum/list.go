package quorum

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// A List is a list of servers. The user gives it a number. Its version counts the changes without a new number:
// a server that lost its data returns with another id. A list with an odd version is only announced: no lock
// is granted with it. When all servers have it, the next version is in force.
type List struct {
	Number  int // zero without a list
	Size    int
	Version int
	Servers []string // sorted ids
}

// Name returns the text that clients and servers compare: a server grants nothing to a client with another name.
func (l List) Name() string {
	if l.Number == 0 {
		return ""
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.Text()))
	numbers := []string{strconv.Itoa(l.Number), strconv.Itoa(l.Size), strconv.Itoa(l.Version), strconv.FormatUint(h.Sum64(), 16)}
	return strings.Join(numbers, "/")
}

// InForce reports whether locks are granted with this version.
func (l List) InForce() bool { return l.Version > 0 && l.Version%2 == 0 }

// Text returns the ids as one text, which ReadList reads.
func (l List) Text() string { return strings.Join(l.Servers, " ") }

// ReadList returns the list with a Name and a Text. Its number is 0 if name is not the Name of a list.
func ReadList(name, ids string) (l List) {
	numbers := strings.Split(name, "/")
	if len(numbers) != 4 {
		return l
	}
	for i, field := range []*int{&l.Number, &l.Size, &l.Version} {
		*field, _ = strconv.Atoi(numbers[i])
	}
	l.Servers = strings.Fields(ids)
	return l
}

// among returns how many ids are among others.
func among(ids, others []string) (n int) {
	for _, id := range ids {
		if slices.Contains(others, id) {
			n++
		}
	}
	return n
}

func (l List) has(id string) bool { return slices.Contains(l.Servers, id) }
