package wire

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

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
		{NotSent(said("WRONGPASS invalid username-password pair")), "error"},
		{NotSent(x509.UnknownAuthorityError{}), "error"},
		{NotSent(tls.RecordHeaderError{}), "error"},
		{said("LOADING Redis is loading the dataset in memory"), "info"},
		{said("OOM command not allowed"), "error"},
		{said("MOVED 3999 127.0.0.1:7001"), "error"},
		{said("ASK 3999 127.0.0.1:7001"), "error"},
		{said("READONLY You can't write against a read only replica."), "info"},
		{NotSent(io.EOF), "info"},
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
