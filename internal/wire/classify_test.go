package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// A refusal is classified by its inner code, in whatever place of a script it was raised
// and however the server's version wraps it.
func TestFault74_PlainRefusal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR Error running script (call to f_36): @user_script:1: @user_script: 1: -READONLY no.": "READONLY no.",
		"@user_script: 1: -READONLY no.":                                   "READONLY no.",
		"ERR user_script:67: READONLY no. script: 8d, on @user_script:67.": "READONLY no. script: 8d, on @user_script:67.",
		"ERR Error running script (call to f_36): @user_script:67: user_script:67: @user_script: 64: The user executing the script can't x": "NOPERM The user executing the script can't x",
		"ERR ACL failure in script: User u has no permissions to run the 'hgetall' command script: f3, on @user_script:103.":                "NOPERM ACL failure in script: User u has no permissions to run the 'hgetall' command script: f3, on @user_script:103.",
		"ERR Protocol error: unauthenticated multibulk length":                                                                              "NOAUTH the server requires a password, and none was given: Protocol error: unauthenticated multibulk length",
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

// A failure that only an operator can change is logged as an error, any other one as
// information.
func TestLogLevels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{said("NOPERM User app has no permissions"), "error"},
		{said("WRONGTYPE Operation against a key"), "error"},
		{&unsentError{said("WRONGPASS invalid username-password pair")}, "error"},
		{&unsentError{x509.UnknownAuthorityError{}}, "error"},
		{&unsentError{tls.RecordHeaderError{}}, "error"},
		{said("LOADING Redis is loading the dataset in memory"), "info"},
		{said("OOM command not allowed"), "error"},
		{said("MOVED 3999 127.0.0.1:7001"), "error"},
		{said("ASK 3999 127.0.0.1:7001"), "error"},
		{said("READONLY You can't write against a read only replica."), "info"},
		{&unsentError{io.EOF}, "info"},
		{io.EOF, "info"},
		{NoAnswer(time.Second), "info"},
	} {
		var got string
		logger := funcr.NewJSON(func(line string) {
			got = "info"
			if !strings.Contains(line, `"level"`) {
				got = "error"
			}
			if !strings.Contains(line, c.err.Error()) {
				t.Errorf("%v is not in the line %s", c.err, line)
			}
		}, funcr.Options{})
		if Log(logger, c.err, "failed"); got != c.want {
			t.Errorf("%v is logged as %q, want %q", c.err, got, c.want)
		}
	}
}
