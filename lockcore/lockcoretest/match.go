package lockcoretest

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
)

// Match chooses what a [Fault] applies to. cmd is a request, its name in
// upper case and its arguments as they were sent; for [DropMessage] and
// [DelayMessage] it is the message: its kind (message, pmessage or smessage),
// for a pmessage the pattern, then channel and payload. A Match is called
// from several goroutines and must not keep or change cmd.
type Match func(cmd []string) bool

// Command matches requests of that name, in any case, whose arguments begin
// with those given.
func Command(name string, args ...string) Match {
	name = strings.ToUpper(name)
	return func(cmd []string) bool {
		return cmd[0] == name && len(cmd) > len(args) && slices.Equal(cmd[1:1+len(args)], args)
	}
}

// Script matches EVAL and EVALSHA, read-only or not, of exactly this source.
//
// A first EVALSHA may only find out that the server does not know the script.
// Faults of replies ([SwallowReply], [ResetAfter], [DelayReply], [TrickleReply])
// let that answer pass and wait for the run; those of requests cannot know, so
// run the script once before, or use [Fault.Skip].
func Script(source string) Match {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return func(cmd []string) bool {
		return byText(cmd) && cmd[1] == source || bySum(cmd) && strings.EqualFold(cmd[1], sha)
	}
}

// Channel matches messages that were published to this channel.
func Channel(name string) Match {
	return func(cmd []string) bool {
		at := 1
		if cmd[0] == "pmessage" {
			at = 2
		}
		return len(cmd) > at && cmd[at] == name
	}
}

// ScriptContaining matches EVAL and EVALSHA of scripts whose source contains
// text. EVALSHA tells no source: it is matched once the source was seen
// through f, in an EVAL or a SCRIPT LOAD. See [Script] for the first EVALSHA.
func (f *Faults) ScriptContaining(text string) Match {
	return func(cmd []string) bool {
		switch {
		case byText(cmd):
			return strings.Contains(cmd[1], text)
		case bySum(cmd):
			source, ok := f.sources.Load(strings.ToLower(cmd[1]))
			return ok && strings.Contains(source.(string), text)
		}
		return false
	}
}

// learn remembers the source of a script that passes by.
func (f *Faults) learn(cmd []string) {
	var source string
	switch {
	case byText(cmd):
		source = cmd[1]
	case len(cmd) == 3 && cmd[0] == "SCRIPT" && strings.EqualFold(cmd[1], "LOAD"):
		source = cmd[2]
	default:
		return
	}
	sum := sha1.Sum([]byte(source))
	f.sources.Store(hex.EncodeToString(sum[:]), source)
}

func byText(cmd []string) bool {
	return len(cmd) > 1 && (cmd[0] == "EVAL" || cmd[0] == "EVAL_RO")
}

func bySum(cmd []string) bool {
	return len(cmd) > 1 && (cmd[0] == "EVALSHA" || cmd[0] == "EVALSHA_RO")
}
