package explorer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A world is the content of a server's keys and of the hidden keys, sorted by name. Its clock is
// at base.
type world []key

func (w world) get(name string) (key, bool) {
	for _, k := range w {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

// value returns the value of a string or of a field of a hash, "" if there is none.
func (w world) value(name, field string) string {
	k, _ := w.get(name)
	value, _ := k.find(field)
	return value
}

// with returns a copy in which a key has other content. Without content, the key is removed.
func (w world) with(k key) world {
	out := make(world, 0, len(w)+1)
	for _, old := range w {
		if old.name != k.name {
			out = append(out, old)
		}
	}
	if len(k.pairs) > 0 {
		out = append(out, k)
	}
	return out
}

// set changes a field of a hash, or a string.
func (w world) set(name, field, value string) world {
	k, ok := w.get(name)
	if !ok {
		k = key{name: name, kind: 'h'}
	}
	pairs := make([]pair, 0, len(k.pairs)+1)
	for _, p := range k.pairs {
		if p.name != field {
			pairs = append(pairs, p)
		}
	}
	if value != "" {
		pairs = append(pairs, pair{field, value})
	}
	if k.kind == 'h' {
		slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	}
	k.pairs = pairs
	return w.with(k)
}

// The meanings of a number in a world.
type meaning byte

const (
	// instant: ms; all past instants are equivalent.
	instant meaning = iota
	// score: ms; of past scores only the order matters.
	score
	// token: µs; of past tokens only the order matters.
	token
)

// normal converts a world whose clock is `later` ms past base to its canonical form: all times are
// moved so that the clock is at base, and of past times only the order is kept.
func normal(r rules, w world, later int64) world {
	out := make(world, 0, len(w))
	for _, k := range w {
		if k.ttl > 0 && !r.lasting(k.name) {
			if k.ttl -= later; k.ttl <= 0 {
				continue
			}
		}
		k.pairs = slices.Clone(k.pairs)
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b key) int { return strings.Compare(a.name, b.name) })
	var old [token + 1][]int64
	collect := func(m meaning, text string) string {
		v := number(text)
		switch m {
		case instant:
			v = max(v-later, base-1)
		case score:
			v -= later
			if v < base {
				old[m] = append(old[m], v)
			}
		case token:
			v -= later * 1000
			if v < base*1000 {
				old[m] = append(old[m], v)
			}
		}
		return strconv.FormatInt(v, 10)
	}
	for i := range out {
		r.numbers(&out[i], collect)
	}
	for m := range old {
		slices.Sort(old[m])
		old[m] = slices.Compact(old[m])
	}
	if len(old[score])+len(old[token]) == 0 {
		return r.tidy(out)
	}
	rank := func(m meaning, text string) string {
		v := number(text)
		at, found := slices.BinarySearch(old[m], v)
		if !found {
			return text
		}
		// In steps of ten, so that a script's "one more than" stays between two neighbours.
		if m == score {
			return strconv.FormatInt(base-1000+int64(at)*10, 10)
		}
		return strconv.FormatInt(base*1000-1000+int64(at)*10, 10)
	}
	for i := range out {
		r.numbers(&out[i], rank)
	}
	return r.tidy(out)
}

func number(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("what is no number: " + text)
	}
	return v
}

func (w world) text() string {
	var b strings.Builder
	for _, k := range w {
		b.WriteString(k.name)
		b.WriteByte(k.kind)
		b.WriteString(strconv.FormatInt(k.ttl, 10))
		for _, p := range k.pairs {
			b.WriteString("\x00" + p.name + "\x00" + p.value)
		}
		b.WriteString("\x01")
	}
	return b.String()
}

func (w world) String() string {
	var b strings.Builder
	for _, k := range w {
		fmt.Fprintf(&b, "\n      %s (%d ms)", k.name, k.ttl)
		for _, p := range k.pairs {
			v, err := strconv.ParseInt(p.value, 10, 64)
			switch {
			case err != nil || v < base/2:
				fmt.Fprintf(&b, " %s=%s", p.name, p.value)
			case v > base*500:
				fmt.Fprintf(&b, " %s=now%+dµs", p.name, v-base*1000)
			default:
				fmt.Fprintf(&b, " %s=now%+dms", p.name, v-base)
			}
		}
	}
	return b.String()
}

// A worldID identifies a world in an atlas.
type worldID int32

// An atlas stores each world once, with the results of scripts. A script that has run on a world
// for one caller need not run on it again. An atlas is safe for concurrent use.
type atlas struct {
	rules rules

	mu     sync.Mutex
	ids    map[string]worldID
	worlds []world
	facts  []facts
	runs   map[runKey]outcome
	shifts map[shiftKey]worldID
}

type runKey struct {
	world  worldID
	script int32
	call   uint32
}

type shiftKey struct {
	world worldID
	what  int32
}

// An outcome is the result of a script.
type outcome struct {
	world  worldID
	code   int8
	broken string // the promise that the script broke, or ""
}

// facts are frequently used facts of a world.
type facts struct {
	holders []holder
	present uint8 // attempts in the lock or in the queue
	fence   bool  // the counter of tokens exists
}

func (a *atlas) fact(id worldID) facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.facts[id]
}

func (a *atlas) holders(id worldID) []holder { return a.fact(id).holders }

func (a *atlas) stands(id worldID, at attemptID) bool { return a.fact(id).present&(1<<at) != 0 }

func newAtlas(r rules) *atlas {
	return &atlas{rules: r, ids: map[string]worldID{}, runs: map[runKey]outcome{}, shifts: map[shiftKey]worldID{}}
}

func (a *atlas) id(w world) worldID {
	text := w.text()
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.ids[text]
	if !ok {
		id = worldID(len(a.worlds))
		a.ids[text] = id
		a.worlds = append(a.worlds, w)
		a.facts = append(a.facts, a.rules.derive(w))
	}
	return id
}

func (a *atlas) world(id worldID) world {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.worlds[id]
}

// run returns the result of calculate for a world, and caches it.
func (a *atlas) run(k runKey, calculate func(world) (world, outcome)) outcome {
	return cached(&a.mu, a.runs, k, func() outcome {
		w, out := calculate(a.world(k.world))
		out.world = k.world
		if out.broken == "" { // otherwise the search ends here, and the content does not matter
			out.world = a.id(normal(a.rules, w, 0))
		}
		return out
	})
}

// change returns the result of calculate for a world and a `what`, and caches it.
func (a *atlas) change(id worldID, what int32, calculate func(world) world) worldID {
	return cached(&a.mu, a.shifts, shiftKey{id, what}, func() worldID { return a.id(calculate(a.world(id))) })
}

func cached[K comparable, V any](mu *sync.Mutex, known map[K]V, k K, calculate func() V) V {
	mu.Lock()
	v, ok := known[k]
	mu.Unlock()
	if !ok {
		v = calculate()
		mu.Lock()
		defer mu.Unlock()
		known[k] = v
	}
	return v
}

// later returns the world after `ms` milliseconds.
func (a *atlas) later(id worldID, ms int64) worldID {
	return a.change(id, int32(ms), func(w world) world { return normal(a.rules, w, ms) })
}

// size returns the number of worlds and of script runs.
func (a *atlas) size() (worlds, runs int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.worlds), len(a.runs)
}
