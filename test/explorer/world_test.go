package explorer

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A world is the content of a server's keys, and what the explorer keeps in mind
// beside it (hidden keys), sorted by name. Its clock stands at base.
type world []key

func (w world) get(name string) (key, bool) {
	for _, k := range w {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

// value is the value of a string, or of a field of a hash; "" if there is none.
func (w world) value(name, field string) string {
	k, _ := w.get(name)
	value, _ := k.find(field)
	return value
}

// with returns a copy in which a key has other content; none: the key is gone.
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

// set changes one field of a hash, or a string.
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

// What a number in a world means.
type meaning byte

const (
	// instant: ms; all that are over are alike.
	instant meaning = iota
	// score: ms; of those that are over only the order matters.
	score
	// token: µs; of those that are over only the order matters.
	token
)

// A grammar says of a kind of world what its numbers mean.
type grammar interface {
	// numbers replaces each number of a key by what visit makes of it.
	numbers(k *key, visit func(meaning, string) string)
	// lasting reports whether a key's TTL is longer than anything explored here.
	lasting(name string) bool
	// tidy drops from a world what is remembered for nothing.
	tidy(w world) world
}

// normal turns a world whose clock is `later` ms past base into the one that
// stands for all that differ from it in nothing that matters: times are moved so
// that the clock stands at base, and what is over keeps its order only.
func normal(g grammar, w world, later int64) world {
	w = shifted(g, w, later)
	return g.tidy(w)
}

func shifted(g grammar, w world, later int64) world {
	out := make(world, 0, len(w))
	for _, k := range w {
		if k.ttl > 0 && !g.lasting(k.name) {
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
		g.numbers(&out[i], collect)
	}
	for m := range old {
		slices.Sort(old[m])
		old[m] = slices.Compact(old[m])
	}
	if len(old[score])+len(old[token]) == 0 {
		return out
	}
	rank := func(m meaning, text string) string {
		v := number(text)
		at, found := slices.BinarySearch(old[m], v)
		if !found {
			return text
		}
		// Ten apart, so that a script's "one more than" stays between its neighbours.
		if m == score {
			return strconv.FormatInt(base-1000+int64(at)*10, 10)
		}
		return strconv.FormatInt(base*1000-1000+int64(at)*10, 10)
	}
	for i := range out {
		g.numbers(&out[i], rank)
	}
	return out
}

func number(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("not a number in a world: " + text)
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
		b.WriteString("\n      " + k.name)
		for _, p := range k.pairs {
			value := p.value
			if v, err := strconv.ParseInt(value, 10, 64); err == nil && v > base/2 {
				if v > base*500 {
					value = "now" + signed(v-base*1000) + "µs"
				} else {
					value = "now" + signed(v-base) + "ms"
				}
			}
			b.WriteString(" " + strings.TrimPrefix(p.name+"="+value, "="))
		}
		if k.ttl > 0 {
			b.WriteString(" (" + strconv.FormatInt(k.ttl, 10) + " ms)")
		}
	}
	return b.String()
}

func signed(v int64) string {
	if v < 0 {
		return strconv.FormatInt(v, 10)
	}
	return "+" + strconv.FormatInt(v, 10)
}

// A worldID names a world in an atlas.
type worldID int32

// An atlas holds the worlds met, each once, and what became of them: a script
// that was run on a world for one caller need not be run on it again, whatever
// the clients are like. Safe for concurrent use.
type atlas struct {
	grammar grammar
	// derive reads off a new world what is asked for often.
	derive func(world) facts

	mu     sync.RWMutex
	ids    map[string]worldID
	worlds []world
	facts  []facts

	shards [64]struct {
		sync.Mutex
		runs   map[runKey]outcome
		shifts map[shiftKey]worldID
	}
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

// An outcome is what a script did.
type outcome struct {
	world  worldID
	code   int8
	told   uint8  // the processes that were sent a message whose receivers count
	broken string // the promise that was broken by it
}

// facts are what is asked of a world often.
type facts struct {
	holders []holder
	present uint8 // attempts that stand in the lock or the line
	fence   bool  // the counter of tokens is there

	last   string // of a job: the newest accounted tick
	paused bool
	clock  int64
	open   [2]bool  // its ticks
	held   [2]int8  // by which run; -1: none
	left   [2]int64 // ms
}

func (a *atlas) fact(id worldID) facts {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.facts[id]
}

func (a *atlas) holders(id worldID) []holder { return a.fact(id).holders }

func (a *atlas) stands(id worldID, at attemptID) bool { return a.fact(id).present&(1<<at) != 0 }

func newAtlas(g grammar, derive func(world) facts) *atlas {
	a := &atlas{grammar: g, derive: derive, ids: map[string]worldID{}}
	for i := range a.shards {
		a.shards[i].runs = map[runKey]outcome{}
		a.shards[i].shifts = map[shiftKey]worldID{}
	}
	return a
}

func (a *atlas) id(w world) worldID {
	text := w.text()
	a.mu.RLock()
	id, ok := a.ids[text]
	a.mu.RUnlock()
	if ok {
		return id
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, ok := a.ids[text]; ok {
		return id
	}
	id = worldID(len(a.worlds))
	a.ids[text] = id
	a.worlds = append(a.worlds, w)
	a.facts = append(a.facts, a.derive(w))
	return id
}

func (a *atlas) world(id worldID) world {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.worlds[id]
}

// run is what calculate makes of a world, calculated once.
func (a *atlas) run(k runKey, calculate func(world) (world, outcome)) outcome {
	shard := &a.shards[k.world&63]
	shard.Lock()
	out, ok := shard.runs[k]
	shard.Unlock()
	if ok {
		return out
	}
	w, out := calculate(a.world(k.world))
	out.world = k.world
	if out.broken == "" { // else the search ends here, and the content may be anything
		out.world = a.id(normal(a.grammar, w, 0))
	}
	shard.Lock()
	shard.runs[k] = out
	shard.Unlock()
	return out
}

// change is what calculate makes of a world, calculated once for each `what`.
func (a *atlas) change(id worldID, what int32, calculate func(world) world) worldID {
	shard := &a.shards[id&63]
	k := shiftKey{id, what}
	shard.Lock()
	to, ok := shard.shifts[k]
	shard.Unlock()
	if ok {
		return to
	}
	to = a.id(calculate(a.world(id)))
	shard.Lock()
	shard.shifts[k] = to
	shard.Unlock()
	return to
}

// later is the world `ms` on.
func (a *atlas) later(id worldID, ms int64) worldID {
	return a.change(id, int32(ms), func(w world) world { return normal(a.grammar, w, ms) })
}

// size is how many worlds there are, and how many runs of scripts were made.
func (a *atlas) size() (worlds, runs int) {
	for i := range a.shards {
		a.shards[i].Lock()
		runs += len(a.shards[i].runs)
		a.shards[i].Unlock()
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return len(a.worlds), runs
}
