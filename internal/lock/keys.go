package lock

import (
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/input"
)

// A keyring builds the keys of a Client, by version 1 of the key schema: docs/ARCHITECTURE.md, "Keys", describes the
// keys and channels. Every key of a name is <prefix>:{<name>}:<part>. The braces put all parts into one slot of a
// cluster. Scripts get all keys and the prefix of the channels as arguments. The packages above define
// the keys and channels of their own records.
type keyring struct {
	prefix   string
	sharded  bool   // whether channels are in the slots of names
	database string // number of the database, because all databases share the channels
	channels string // prefix of the channels of processes, unless sharded
}

// A KeyPart describes the keys with one part. docs/ARCHITECTURE.md and package doctor use it.
type KeyPart struct {
	Types   []string // types in Redis, empty if the key never exists
	Endless bool     // whether the key may have no TTL
	Schema  string   // version that this release reads and writes, if any
}

var parts = map[string]KeyPart{
	"lock":     {Types: []string{"string", "zset"}, Schema: "nl1"},
	"fence":    {Types: []string{"string"}},
	"queue":    {Types: []string{"zset"}},
	"seen":     {Types: []string{"hash"}},
	"size":     {Types: []string{"string"}},
	"forced":   {Types: []string{"hash"}},
	"releases": {Types: []string{"list"}},
	"tomb":     {Types: []string{"string"}},
	"ack":      {Types: []string{"string"}},
	"never":    {},
	"history":  {Types: []string{"string"}, Endless: true}, // one key for each server
	"quorum":   {Types: []string{"hash"}, Endless: true},
}

type nameKeys struct {
	name                     string
	base                     string // prefix of all keys
	lock, fence, queue, seen string
	tombs                    string // prefix of the keys of tombstones
	channels                 string // prefix of the channels of processes
}

func (k keyring) lock(name string) *nameKeys {
	base := k.prefix + ":{" + name + "}:"
	all := base + "lock" + base + "fence" + base + "queue" + base + "seen" + base + "tomb:" // one allocation for all keys
	next := func(part string) (key string) {
		n := len(base) + len(part)
		key, all = all[:n], all[n:]
		return key
	}
	keys := &nameKeys{
		name: name, base: base, channels: k.channels,
		lock: next("lock"), fence: next("fence"), queue: next("queue"), seen: next("seen"), tombs: next("tomb:"),
	}
	if k.sharded {
		keys.channels = k.channel(name, "ch:")
	}
	return keys
}

// args returns the keys of a lock as arguments of a script.
func (k *nameKeys) args() []any { return []any{&k.lock, &k.fence, &k.queue, &k.seen} }

// argsWith returns args and the key of an attempt's tombstone.
func (k *nameKeys) argsWith(tomb string) []any {
	return []any{&k.lock, &k.fence, &k.queue, &k.seen, tomb}
}

func (k *nameKeys) key(part string) string { return k.base + part }

func (k keyring) history(tag string) string {
	if tag == "" {
		return k.prefix + ":history"
	}
	return k.prefix + ":{" + tag + "}:history"
}

// marker returns the key of the state of a server in a quorum, see quorum_join.lua. No lock has this key, as keys
// of locks have a brace after the colon.
func (k keyring) marker() string { return k.prefix + ":quorum" }

// channel returns a channel for messages about a name.
func (k keyring) channel(name, rest string) string {
	if k.sharded {
		return k.prefix + ":{" + name + "}:" + rest
	}
	return k.prefix + ":" + rest
}

// attemptText returns the identifier of an attempt, between two other texts.
func attemptText(before, process string, number uint64, after string) string {
	var digits [13]byte
	return before + process + "." + string(strconv.AppendUint(digits[:0], number, 36)) + after
}

// nameOf returns the name in a lock's key. Messages contain the key.
func (k keyring) nameOf(lock string) (name string, ok bool) {
	name, ok = strings.CutPrefix(lock, k.prefix+":{")
	if ok {
		name, ok = strings.CutSuffix(name, "}:lock")
	}
	return name, ok
}

// A Search selects names by their keys on the servers.
type Search struct {
	Prefix string   // prefix of the names
	Parts  []string // a name is found if it has a key with one of these parts
	// Progress is called with the approximate number of keys read so far. It may be nil.
	Progress func(keys int)
}

// pattern returns a glob pattern that matches the keys of a Search, and perhaps keys with other parts.
func (k keyring) pattern(s Search) string {
	part := "*"
	if len(s.Parts) == 1 {
		part = s.Parts[0]
	}
	return globbed.Replace(k.prefix) + ":{" + s.Prefix + "*}:" + part
}

// globbed escapes a text, so that in a glob pattern it matches only itself.
var globbed = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// longestName is the maximum length of names: the packages above accept 200 bytes and add prefixes of up to 10 bytes.
const longestName = 210

// split returns the name and the part of a key of this module. A name has no braces.
func (k keyring) split(key string) (name, part string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+":{")
	if !ok {
		return "", "", false
	}
	name, part, ok = strings.Cut(rest, "}:")
	return name, part, ok && input.Fault(name, longestName, true) == ""
}

// The tags of the values of locks with owners and of Semaphores.
const (
	OwnedTag     = "ns1"
	SemaphoreTag = "np1"
)

// The modes in which an owner holds a lock.
const (
	ModeRead  = "r"
	ModeWrite = "w"
)

// attemptValue returns the value of an attempt at the server: the process, the
// attempt's number and the identity. Only the identity may be shown.
func attemptValue(process string, number uint64, identity string) string {
	return attemptText("nl1:", process, number, "/"+identity)
}

// ownedValue returns an attemptValue with the mode and the owner. The space after the
// owner is unambiguous, as an owner contains none.
func ownedValue(mode, owner, process string, number uint64, identity string) string {
	return attemptText(OwnedTag+":", process, number, "."+mode+"/"+owner+" "+identity)
}

// slotValue returns the value of an attempt at a Semaphore. It has the form of an ownedValue with the owner -.
func slotValue(process string, number uint64, identity string) string {
	return attemptText(SemaphoreTag+":", process, number, ".p/- "+identity)
}

// A Value is the content of a value that the server stores for an attempt.
type Value struct {
	Identity string
	Owner    string // "" for a mutex and a Semaphore
	mode     string // ModeRead or ModeWrite; "" for a mutex and a Semaphore
	process  string
	number   uint64

	semaphore bool // whether the attempt is at a Semaphore
}

// Reads reports whether the attempt is for reading.
func (v Value) Reads() bool { return v.mode == ModeRead }

// ReadValue parses a stored value. ok is false for a text that this library has not written.
func ReadValue(value string) (v Value, ok bool) {
	tag, body, _ := strings.Cut(value, ":")
	head, identity, found := strings.Cut(body, "/")
	parts := strings.Split(head, ".")
	switch {
	case !found:
		return Value{}, false
	case tag == "nl1" && len(parts) == 2:
		v.Identity = identity
	case tag == SemaphoreTag && len(parts) == 3:
		v.semaphore, v.Identity = true, strings.TrimPrefix(identity, "- ") // see slotValue
	case tag == OwnedTag && len(parts) == 3:
		owner, shown, found := strings.Cut(identity, " ")
		if !found {
			return Value{}, false
		}
		v.mode, v.Owner, v.Identity = parts[2], owner, shown
	default:
		return Value{}, false
	}
	number, err := strconv.ParseUint(parts[1], 36, 64)
	if err != nil {
		return Value{}, false
	}
	v.process, v.number = parts[0], number
	return v, true
}
