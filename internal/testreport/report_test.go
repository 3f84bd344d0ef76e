package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The packages are run with the real go test, so the format of its output is real.
var packages = map[string]string{
	"good": `
func TestPasses(t *testing.T) { t.Log("not shown"); t.Attr("counted", "7 cows") }
func TestSkips(t *testing.T) { t.Skip("no cow here") }
func TestParts(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b", func(t *testing.T) { t.Skip("no b here") })
}`,
	"bad": `
func TestPasses(t *testing.T) {}
func TestFails(t *testing.T) {
	t.Log("what came before")
	t.Run("part", func(t *testing.T) { t.Error("what broke") })
}`,
	"unbuilt":  `func TestPasses(t *testing.T) { undefinedName() }`,
	"unvetted": `func TestPasses(t *testing.T) { t.Errorf("%d", "no number") }`,
	"panics":   `func TestPanics(t *testing.T) { panic("what panicked") }`,
	"exits":    `func TestExits(t *testing.T) { os.Exit(3) }`,
	"hangs":    `func TestHangs(t *testing.T) { time.Sleep(time.Hour) }`,
	"noted":    `func TestMain(m *testing.M) { m.Run(); println("what TestMain said"); os.Exit(4) }; func TestPasses(*testing.T) {}`,
}

func run(t *testing.T, arguments ...string) (output, closing string) {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module github.com/noonlock/noonlock\n\ngo 1.26.0\n")
	for name, text := range packages {
		write(name+"/some_test.go", "package "+name+"\n\nimport (\n\"os\"\n\"testing\"\n\"time\"\n)\n\nvar _, _ = os.Exit, time.Sleep\n\n"+text+"\n")
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1"}, arguments...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r := newReport(&out, time.Now)
	if err := read(stdout, r); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the report says what failed
	closing = r.finish()
	if !strings.HasSuffix(out.String(), "\n\n"+closing) {
		t.Errorf("the output does not end with %q:\n%s", closing, out.String())
	}
	return out.String(), closing
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, last string
		want       []string
		why        string // the reasons of the skipped tests
	}{
		{"good", "2 passed, 0 failed, 2 skipped", []string{"ok   good", "good: TestSkips: no cow here\n", "good: TestParts/b: no b here\n", "TestPasses: 7 cows\n"}, "1 skipped: no b here; 1 skipped: no cow here"},
		{"bad", "1 passed, 1 failed, 0 skipped", []string{"FAIL bad", "what came before", "bad: TestFails/part\n", "what broke\n    --- FAIL: TestFails/part (0.00s)\n\nAll tests took"}, "none was skipped"},
		{"unbuilt", "0 passed, 1 failed, 0 skipped", []string{"FAIL unbuilt", "undefined: undefinedName", "unbuilt: does not build\n"}, "none was skipped"},
		{"unvetted", "0 passed, 1 failed, 0 skipped", []string{"FAIL unvetted", "%d", "wrong type"}, "none was skipped"},
		{"panics", "0 passed, 1 failed, 0 skipped", []string{"FAIL panics", "panic: what panicked", "goroutine", "panics: TestPanics\n    "}, "none was skipped"},
		{"exits", "0 passed, 1 failed, 0 skipped", []string{"FAIL exits", "exits: TestExits\n"}, "none was skipped"},
		{"hangs", "0 passed, 1 failed, 0 skipped", []string{"FAIL hangs", "test timed out after", "hangs: TestHangs\n"}, "none was skipped"},
		{"noted", "1 passed, 1 failed, 0 skipped", []string{"FAIL noted", "what TestMain said", "noted: failed outside of its tests\n"}, "none was skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arguments := []string{"./" + c.name}
			if c.name == "hangs" {
				arguments = append(arguments, "-timeout=100ms")
			}
			out, closing := run(t, arguments...)
			want := regexp.MustCompile(`^All tests took \d+\.\d s; ` + regexp.QuoteMeta(c.why+"\n"+c.last+"\n") + "$")
			if !want.MatchString(closing) {
				t.Errorf("the closing lines are %q, want %s", closing, want)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing", want)
				}
			}
			if strings.Contains(out, "not shown") {
				t.Error("the output of a test that passed is shown")
			}
			if t.Failed() {
				t.Logf("the output:\n%s", out)
			}
		})
	}
}

func TestSilenceIsBroken(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var out strings.Builder
	r := newReport(&out, func() time.Time { return now })
	after := func(d time.Duration) string {
		now = now.Add(d)
		out.Reset()
		r.stillRunning()
		return out.String()
	}
	if got := after(silence - 1); got != "" {
		t.Errorf("too early: %q", got)
	}
	if got := after(1); !strings.Contains(got, "building, for 30.0 s") {
		t.Errorf("before any test: %q", got)
	}
	r.add(event{Action: "start", Package: "github.com/noonlock/noonlock/lockcore"})
	for _, name := range []string{"TestOver", "TestSlow", "TestSlow/part", "TestLater"} {
		r.add(event{Action: "run", Package: "github.com/noonlock/noonlock/lockcore", Test: name})
	}
	r.add(event{Action: "pass", Package: "github.com/noonlock/noonlock/lockcore", Test: "TestOver"})
	if got := after(2 * silence); !strings.Contains(got, "lockcore") || !strings.Contains(got, "1m0s  TestSlow/part\n") {
		t.Errorf("while a test runs: %q", got)
	}
	if closing := r.finish(); closing != "All tests took 1m30s; none was skipped\n1 passed, 2 failed, 0 skipped\n" {
		t.Errorf("go test was killed: %q", closing)
	}
}

func TestReasonsAreCounted(t *testing.T) {
	t.Parallel()
	r := newReport(io.Discard, func() time.Time { return time.Unix(0, 0) })
	for i, why := range []string{"no hen", "no cow", "no bee", "no cow", "no cow", "no hen"} {
		name := "TestAnimal" + strconv.Itoa(i)
		r.add(event{Action: "run", Package: "farm", Test: name})
		r.add(event{Action: "output", Package: "farm", Test: name, Output: "    farm_test.go:7: " + why + "\n"})
		r.add(event{Action: "skip", Package: "farm", Test: name})
	}
	r.add(event{Action: "pass", Package: "farm"})
	const want = "All tests took 0.0 s; 3 skipped: no cow; 2 skipped: no hen; 1 skipped: no bee\n0 passed, 0 failed, 6 skipped\n"
	if closing := r.finish(); closing != want {
		t.Errorf("the closing lines are %q, want %q", closing, want)
	}
}
