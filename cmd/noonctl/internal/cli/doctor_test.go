package cli_test

import (
	"strings"
	"testing"

	"github.com/noonlock/noonlock/doctor"
)

// doctor prints each check, and the rules of those that are not ok. Its exit code is 1 if one
// fails.
func TestDoctor(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	args := func(more ...string) []string {
		return append([]string{"doctor", "--observe", "100ms", "--timeout", "1m"}, more...)
	}
	out := e.must(args()...)
	for _, want := range []string{"one server, prefix noonlock: warn\n", "VERDICT   CHECK ", "ok        version ", e.Real.Addr(), "warn      persistence ", "\npersistence: Set `appendonly yes`"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\nversion: ") {
		t.Errorf("the rule of a check that is ok is printed:\n%s", out)
	}

	e.set("app:{x}:lock", "a value\x1b[2J")
	e.set("app:\x1b[2J", "x")
	r := e.noonctl(args("--prefix", "app")...)
	if r.code != 1 || r.errOut != "" || !strings.Contains(r.out, "fail      keys ") || strings.Contains(r.out, "\x1b") {
		t.Errorf("a lock without an end: %+v", r)
	}
	for _, format := range []string{"json", "yaml"} {
		r := e.noonctl(args("--prefix", "app", "-o", format)...)
		if r.code != 1 || !strings.Contains(r.out, "fail") || format == "yaml" && !strings.HasPrefix(r.out, "verdict: fail\ntopology: one server\nchecks:\n  - check: connection\n") {
			t.Errorf("%s: %+v", format, r)
		}
	}
	report := decode[doctor.Report](t, e.must(args("-o", "json", "--uses", "mutex")...))
	rights := 0
	for _, c := range report.Checks {
		if c.Name == "rights" {
			rights++
		}
	}
	if report.Verdict != doctor.Warn || rights != 1 {
		t.Errorf("%+v", report)
	}
}

// A server that does not answer has another exit code than a failed
// check, such as that of a wrong password.
func TestDoctorFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if r := run(t.Context(), "redis://:sesame@127.0.0.1:1", "doctor"); r.code != 69 || !strings.Contains(r.out, "fail      connection") || strings.Contains(r.out+r.errOut, "sesame") {
		t.Errorf("no server: %+v", r)
	}
	if r := run(t.Context(), strings.Replace(e.url, "redis://", "redis://u:sesame@", 1), "doctor", "-o", "json"); r.code != 1 || !strings.Contains(r.out, "WRONGPASS") {
		t.Errorf("a wrong password: %+v", r)
	}
	e.Real.Pause()
	if r := e.noonctl("doctor", "--timeout", "3s"); r.code != 69 || !strings.Contains(r.out, "no answer within 3s") {
		t.Errorf("a frozen server: %+v", r)
	}
	e.Real.Resume()
}
