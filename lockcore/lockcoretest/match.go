package lockcoretest

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
)

// Match selects the requests or messages that a [Fault] applies to. For a request, cmd is
// its name in upper case and its arguments as sent. For [DropMessage] and [DelayMessage],
// cmd is the kind of the message (message, pmessage or smessage), the pattern of a
// pmessage, the channel, and the payload. A Match is called from several goroutines, and
// must neither keep nor modify cmd.
type Match func(cmd []string) bool

// Command matches requests with this name, in upper or lower case, whose arguments begin
// with args.
func Command(name string, args ...string) Match {
	name = strings.ToUpper(name)
	return func(cmd []string) bool {
		return cmd[0] == name && len(cmd) > len(args) && slices.Equal(cmd[1:1+len(args)], args)
	}
}

// Script matches EVAL and EVALSHA, also their read-only forms, of exactly this source.
//
// The first EVALSHA of a script may fail because the server does not have the script.
// Faults of replies ([SwallowReply], [ResetAfter], [DelayReply], [TrickleReply]) ignore
// that reply and apply to the next run. Faults of requests cannot detect this case. Run
// the script once before, or use [Fault.Skip].
func Script(source string) Match {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return func(cmd []string) bool {
		return byText(cmd) && cmd[1] == source || bySum(cmd) && strings.EqualFold(cmd[1], sha)
	}
}

// Channel matches messages published to this channel.
func Channel(name string) Match {
	return func(cmd []string) bool {
		at := 1
		if cmd[0] == "pmessage" {
			at = 2
		}
		return len(cmd) > at && cmd[at] == name
	}
}

// ScriptContaining matches EVAL and EVALSHA of scripts whose source contains text. An
// EVALSHA carries no source, so it matches only after an EVAL or a SCRIPT LOAD of the
// source has passed through f. See [Script] for the first EVALSHA.
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

// learn stores the source of a script that passes through f.
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
