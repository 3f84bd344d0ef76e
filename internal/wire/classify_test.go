package wire

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// A failure that only an operator can change is logged as an error, any other one as information. One that may pass
// without an operator is temporary.
func TestLogLevelsAndTemporaryErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		want      string
		temporary bool
	}{
		{said("NOPERM User app has no permissions"), "error", false},
		{said("NOAUTH Authentication required"), "error", false},
		{said("WRONGTYPE Operation against a key"), "error", false},
		{NotSent(said("WRONGPASS invalid username-password pair")), "error", false},
		{NotSent(x509.UnknownAuthorityError{}), "error", false},
		{NotSent(tls.RecordHeaderError{}), "error", false},
		{said("LOADING Redis is loading the dataset in memory"), "info", true},
		{said("BUSY Redis is busy running a script"), "info", true},
		{said("OOM command not allowed"), "error", false},
		{said("MOVED 3999 127.0.0.1:7001"), "error", false},
		{said("ASK 3999 127.0.0.1:7001"), "error", false},
		{said("READONLY You can't write against a read only replica."), "info", true},
		{NotSent(io.EOF), "info", true},
		{io.EOF, "info", false},
		{NotSent(NoAnswer(time.Second)), "info", true},
		{fmt.Errorf("%w: %w", ErrUnknown, NoAnswer(time.Second)), "info", true},
		{ErrClosed, "info", false},
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
		if Log(logger, c.err, "failed"); got != c.want || IsTemporary(c.err) != c.temporary {
			t.Errorf("%v is logged as %q, want %q; temporary: %v", c.err, got, c.want, IsTemporary(c.err))
		}
	}
	if IsTemporary(nil) {
		t.Error("no error is temporary")
	}
}
