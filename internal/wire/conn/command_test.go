package conn

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A refusal is classified by its inner code, in whatever place of a script it was raised
// and however the server's version wraps it.
func TestFault74_PlainRefusal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR Error running script (call to f_36): @user_script:1: @user_script: 1: -READONLY no.": "READONLY no.",
		"@user_script: 1: -READONLY no.":                                   "READONLY no.",
		"ERR user_script:67: READONLY no. script: 8d, on @user_script:67.": "READONLY no.",
		"ERR Error running script (call to f_36): @user_script:67: user_script:67: @user_script: 64: The user executing the script can't x": "NOPERM The user executing the script can't x",
		"ERR ACL failure in script: User u has no permissions to run the 'hgetall' command script: f3, on @user_script:103.":                "NOPERM ACL failure in script: User u has no permissions to run the 'hgetall' command",
		"ERR Protocol error: unauthenticated multibulk length":                                                                              "NOAUTH the server requires a password, and none was given: Protocol error: unauthenticated multibulk length",
		"READONLY no.": "READONLY no.",
		"ERR Error compiling script (new function): :15: WRONGTYPE no. stack traceback: [G]: in function 'call'": ErrWrongKind.Error() + "\nWRONGTYPE no. stack traceback: [G]: in function 'call'",
		"ERR user_script:3: attempt to index a nil value":                                                        "ERR user_script:3: attempt to index a nil value",
		"OOM command not allowed": "OOM command not allowed",
	} {
		err := PlainRefusal(&Refusal{text})
		if err.Error() != want || !errors.As(err, new(redis.Error)) {
			t.Errorf("%q is read as %q, want %q", text, err, want)
		}
	}
	if own := errors.New("x"); PlainRefusal(own) != own { //nolint:errorlint // the same one
		t.Error("another error was changed")
	}
}
