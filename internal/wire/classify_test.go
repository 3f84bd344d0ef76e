package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	unknown := fmt.Errorf("%w: %w", ErrUnknown, NoAnswer(time.Second))
	unreplicated := func(err error) error { return errors.Join(ErrNotReplicated, err) }
	for _, c := range []struct {
		err     error
		outcome Outcome
		is      string
	}{
		{nil, Applied, ""},
		{said("NOPERM User app has no permissions"), Refused, "applied operator"},
		{said("NOAUTH Authentication required"), Refused, "applied operator"},
		{said("WRONGTYPE Operation against a key"), Refused, "applied operator"},
		{said("LOADING Redis is loading the dataset in memory"), Refused, "applied retry later temporary"},
		{said("BUSY Redis is busy running a script"), Refused, "applied retry later temporary"},
		{said("READONLY You can't write against a read only replica."), Refused, "applied retry later temporary"},
		{said("OOM command not allowed"), Refused, "applied later operator"},
		{said("NOREPLICAS Not enough good replicas to write."), Refused, "applied later operator"},
		{said("MOVED 3999 127.0.0.1:7001"), Moved, "applied operator"},
		{said("ASK 3999 127.0.0.1:7001"), Moved, "applied operator"},
		{Redirected(said("ASK 3999 127.0.0.1:7001")), Moved, "applied retry later temporary"},
		{NotSent(io.EOF), Unsent, "retry later temporary"},
		{NotSent(NoAnswer(time.Second)), Unsent, "retry later temporary"},
		{NotSent(said("LOADING Redis is loading the dataset in memory")), Unsent, "retry later temporary"},
		{NotSent(said("WRONGPASS invalid username-password pair")), Unsent, "operator"},
		{NotSent(ErrNoHistory), Unsent, "operator"},
		{NotSent(x509.UnknownAuthorityError{}), Unsent, "operator"},
		{NotSent(tls.RecordHeaderError{}), Unsent, "operator"},
		{NotSent(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), Unsent, "operator"},
		{NotSent(&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}), Unsent, "retry later temporary"},
		{errors.Join(ErrClosed, NotSent(io.EOF)), Unsent, "retry later"},
		{io.EOF, Ended, ""},
		{ErrClosed, Ended, ""},
		{&DelayError{}, Ended, "temporary"},
		{unknown, Unknown, "applied retry later temporary"},
		{errors.Join(unknown, NotSent(x509.UnknownAuthorityError{})), Unknown, "applied"},
		{Command("ping").OddReply(5), Ended, "operator"},
		{ErrNotReplicated, Unreplicated, "applied temporary"},
		{unreplicated(said("UNBLOCKED force unblock from blocking operation")), Unreplicated, "applied temporary"},
		{unreplicated(said("NOPERM User app has no permissions")), Unreplicated, "applied operator"},
		{&NoQuorumError{Of: []error{said("NOPERM")}}, Unknown, "applied retry later temporary"},
		{&NoQuorumError{Permanent: true}, Unknown, "applied operator"},
	} {
		v := VerdictOf(c.err)
		var is []string
		for _, f := range []struct {
			name string
			set  bool
		}{{"applied", v.MayBeApplied}, {"retry", v.Retry}, {"later", v.Later}, {"temporary", v.Temporary}, {"operator", v.Operator}} {
			if f.set {
				is = append(is, f.name)
			}
		}
		if got := strings.Join(is, " "); v.Outcome != c.outcome || got != c.is {
			t.Errorf("%v: outcome %d and %q, want %d and %q", c.err, v.Outcome, got, c.outcome, c.is)
		}
	}
}

// A failure that only an operator can change is logged as an error, any other one as information.
func TestLogLevels(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{said("NOPERM User app has no permissions"): "error", NotSent(io.EOF): "info"} {
		var got string
		logger := funcr.NewJSON(func(line string) {
			got = "info"
			if !strings.Contains(line, `"level"`) {
				got = "error"
			}
			if !strings.Contains(line, err.Error()) {
				t.Errorf("%v is not in the line %s", err, line)
			}
		}, funcr.Options{})
		if Log(logger, err, "failed"); got != want {
			t.Errorf("%v is logged as %q, want %q", err, got, want)
		}
	}
}
