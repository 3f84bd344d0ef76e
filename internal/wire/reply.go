package wire

import (
	"fmt"
	"strconv"
	"time"
)

// A ReplyError reports a reply that a script never gives. The cause is an unexpected key or server.
type ReplyError struct {
	Script string
	Reply  string
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("lockcore: unexpected reply to %s: %s", e.Script, e.Reply)
}

// shape describes a reply without its text, which may contain a secret.
func shape(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nothing"
	case int64:
		return strconv.FormatInt(r, 10)
	case string:
		return fmt.Sprintf("a string of %d bytes", len(r))
	case []any:
		return fmt.Sprintf("a list of %d", len(r))
	default:
		return fmt.Sprintf("a %T", reply)
	}
}

// Text returns a reply that is a string, and "" for other replies.
func Text(reply any) string {
	s, _ := reply.(string)
	return s
}

// Instant parses the Unix milliseconds in a reply. "" is the zero time.
func Instant(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms).UTC(), err
}
