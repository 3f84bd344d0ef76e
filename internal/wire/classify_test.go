package wire

import (
	"errors"
	"testing"
)

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// The code that a refusal is decided by is the inner one, wherever in a script it was
// raised and whatever the version of the server wraps it in.
func TestPlainRefusal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR Error running script (call to f_36): @user_script:1: @user_script: 1: -READONLY no.": "READONLY no.",
		"@user_script: 1: -READONLY no.":                                   "READONLY no.",
		"ERR user_script:67: READONLY no. script: 8d, on @user_script:67.": "READONLY no. script: 8d, on @user_script:67.",
		"ERR Error running script (call to f_36): @user_script:67: user_script:67: @user_script: 64: The user executing the script can't x": "NOPERM The user executing the script can't x",
		"ERR Protocol error: unauthenticated multibulk length":                                                                              "NOAUTH the server asks for a password and was given none: Protocol error: unauthenticated multibulk length",
		"READONLY no.": "READONLY no.",
		"ERR user_script:3: attempt to index a nil value": "ERR user_script:3: attempt to index a nil value",
		"OOM command not allowed":                         "OOM command not allowed",
	} {
		err := plainRefusal(said(text))
		if err.Error() != want || !IsRefused(err) {
			t.Errorf("%q is read as %q, want %q", text, err, want)
		}
	}
	if own := errors.New("x"); plainRefusal(own) != own { //nolint:errorlint // the same one
		t.Error("another error was changed")
	}
}
