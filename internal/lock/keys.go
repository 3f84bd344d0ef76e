package lock

import (
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
)

// The key schema, version 1. docs/ARCHITECTURE.md, "Keys", describes the keys and channels. Every key of
// a name is built here, as <prefix>:{<name>}:<part>. The braces put all parts into one slot of a
// cluster. Scripts get all keys and the prefix of the channels as arguments. The packages above define
// the keys and channels of their own records.
type keyring struct {
	prefix  string
	sharded bool // as in a cluster
}

// nameKeys are the keys of one lock.
type nameKeys struct {
	name                     string
	lock, fence, queue, seen string
	forced, releases         string
	never                    string
	base                     string
	channels                 string // the prefix of the channels of processes

	// The same as arguments of requests: lock, fence, queue and seen, and channels.
	args        []any
	channelsArg any
	freed       string // channel of releases, in a quorum
}

func (k keyring) lock(name string) *nameKeys {
	base := k.prefix + ":{" + name + "}:"
	keys := &nameKeys{
		name: name, base: base,
		lock: base + "lock", fence: base + "fence", queue: base + "queue", seen: base + "seen", forced: base + "forced", releases: base + "releases", never: base + "never",
		channels: k.channel(name, "ch:"),
		freed:    k.channel(name, "free:"+name),
	}
	keys.args = wire.Keys(keys.lock, keys.fence, keys.queue, keys.seen)
	keys.channelsArg = keys.channels
	return keys
}

// history returns the key of the history of a server's data.
func (k keyring) history(tag string) string {
	if tag == "" {
		return k.prefix + ":history"
	}
	return k.prefix + ":{" + tag + "}:history"
}

// marker returns the key of the state of a server in a quorum, see quorum_join.lua. Keys of locks
// have a brace after the colon.
func (k keyring) marker() string { return k.prefix + ":quorum" }

// channel returns a channel for messages about a name.
func (k keyring) channel(name, rest string) string {
	if k.sharded {
		return k.prefix + ":{" + name + "}:" + rest
	}
	return k.prefix + ":" + rest
}

// tomb returns the key of an attempt's tombstone.
func (k *nameKeys) tomb(process string, number uint64) string {
	return k.base + "tomb:" + attemptID(process, number)
}

// attemptID returns the identifier of an attempt.
func attemptID(process string, number uint64) string {
	return process + "." + strconv.FormatUint(number, 36)
}

// nameOf returns the name of a lock's key, as messages contain it.
func (k keyring) nameOf(lock string) (name string, ok bool) {
	name, ok = strings.CutPrefix(lock, k.prefix+":{")
	if ok {
		name, ok = strings.CutSuffix(name, "}:lock")
	}
	return name, ok
}

// A Search selects names by their keys on the servers.
type Search struct {
	Prefix string   // of the names
	Parts  []string // a name is found if it has a key of one of these parts
	// Progress is called with how many keys have been looked at, about. It may be nil.
	Progress func(keys int)
}

// pattern returns a glob pattern that matches the keys of a Search, and few others.
func (k keyring) pattern(s Search) string {
	part := s.Parts[0]
	if len(s.Parts) > 1 {
		var first strings.Builder
		for _, p := range s.Parts {
			first.WriteString(p[:1])
		}
		part = "[" + first.String() + "]*"
	}
	return globbed.Replace(k.prefix) + ":{" + s.Prefix + "*}:" + part
}

// globbed makes a text match itself in a glob pattern.
var globbed = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// split returns the name and the part of a key that is built here or by the packages above.
// A name has no braces.
func (k keyring) split(key string) (name, part string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+":{")
	if !ok {
		return "", "", false
	}
	name, part, ok = strings.Cut(rest, "}:")
	return name, part, ok && input.Fault(name, 210, true) == ""
}
