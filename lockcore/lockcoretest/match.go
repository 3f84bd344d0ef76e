package lockcoretest

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
)

// Command matches requests with this name, in upper or lower case, whose arguments begin
// with args.
func Command(name string, args ...string) func(cmd []string) bool {
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
func Script(source string) func(cmd []string) bool {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return func(cmd []string) bool {
		switch {
		case len(cmd) < 2:
			return false
		case cmd[0] == "EVAL", cmd[0] == "EVAL_RO":
			return cmd[1] == source
		}
		return (cmd[0] == "EVALSHA" || cmd[0] == "EVALSHA_RO") && strings.EqualFold(cmd[1], sha)
	}
}

// Channel matches messages published to this channel.
func Channel(name string) func(cmd []string) bool {
	return func(cmd []string) bool {
		at := 1
		if cmd[0] == "pmessage" {
			at = 2
		}
		return len(cmd) > at && cmd[at] == name
	}
}
