package lockcore

import (
	"strconv"
	"strings"
)

// The key schema, version 1. Every key of a name is built here, as
// <prefix>:{<name>}:<part>: the braces put all parts into one slot of a cluster.
//
//	lock       string  the holder's attempt, with the lease's TTL; of a reentrant or
//	                   read-write lock a sorted set, see part_owned.lua
//	fence      string  counter of fencing tokens, Config.TokenRetention (of jobs and
//	                   elections a week), or longer if it is ahead of the clock
//	queue      zset    attempts in line, by order of arrival
//	seen       hash    attempt -> alive until (server ms), see part_line.lua
//	tomb:<n>   string  this attempt was given up and a request of it is unanswered,
//	                   minutes
//
// and of a Record, which may share its name with a lock:
//
//	record     string  nr1 <version> <value>, as long as its writer said
//
// The channel of a Client is <prefix>:ch:<process>. The packages above spell the keys
// and channels of their own records.
type keyring struct{ prefix string }

// lockKeys are the keys of one lock.
type lockKeys struct {
	name                     string
	lock, fence, queue, seen string
	stem                     string
}

func (k keyring) lock(name string) *lockKeys {
	stem := k.prefix + ":{" + name + "}:"
	return &lockKeys{
		name: name, stem: stem,
		lock: stem + "lock", fence: stem + "fence", queue: stem + "queue", seen: stem + "seen",
	}
}

// record is the key of a Record.
func (k keyring) record(name string) string { return k.lock(name).stem + "record" }

// Names that users' locks may not begin with: the runners' live there.
const (
	jobNames      = "job/"
	electionNames = "election/"
)

// tomb is the tombstone of one attempt. It is named by process and number only:
// what is secret about an attempt is its process.
func (k *lockKeys) tomb(process string, number uint64) string {
	return k.stem + "tomb:" + process + "." + strconv.FormatUint(number, 36)
}

// channels is the prefix of the channels that processes listen on.
func (k keyring) channels() string { return k.prefix + ":ch:" }

// attemptValue is what the server stores for an attempt: who asks, which of its
// attempts, whether PUBLISH's count of receivers can be trusted, and the part
// that may be shown.
func attemptValue(process string, number uint64, trusted bool, identity string) string {
	flag := "u"
	if trusted {
		flag = "t"
	}
	return "nl1:" + process + "." + strconv.FormatUint(number, 36) + "." + flag + "/" + identity
}

// ownedValue is an attemptValue that says as what who asks. The owner has no spaces.
func ownedValue(k ownedKind, process string, number uint64, trusted bool, identity string) string {
	flag := "u"
	if trusted {
		flag = "t"
	}
	return k.letters + ":" + process + "." + strconv.FormatUint(number, 36) + "." + flag + "." + k.mode + "/" + k.owner + " " + identity
}

// A parsedAttempt is what a stored value says.
type parsedAttempt struct {
	kind     lineKind
	process  string
	number   uint64
	identity string
}

// parseAttempt undoes attemptValue and ownedValue; ok is false for a foreign value.
func parseAttempt(value string) (p parsedAttempt, ok bool) {
	letters, rest, _ := strings.Cut(value, ":")
	head, identity, found := strings.Cut(rest, "/")
	parts := strings.Split(head, ".")
	switch {
	case !found:
		return p, false
	case letters == "nl1" && len(parts) == 3:
		p.kind, p.identity = mutexKind{}, identity
	case (letters == reentrantKind || letters == readWriteKind) && len(parts) == 4:
		owner, shown, found := strings.Cut(identity, " ")
		if !found {
			return p, false
		}
		p.kind, p.identity = ownedKind{letters, parts[3], owner}, shown
	default:
		return p, false
	}
	number, err := strconv.ParseUint(parts[1], 36, 64)
	if err != nil {
		return parsedAttempt{}, false
	}
	p.process, p.number = parts[0], number
	return p, true
}
