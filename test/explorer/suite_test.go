package explorer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

// A suite is the tests of the packages, each compiled once, to run with a mutant.
type suite struct {
	compile map[string]func() (string, error) // by package
}

// leastLimit is how long each test may take.
const leastLimit = time.Minute

// everything is the name that matches all tests.
const everything = ""

// errTimedOut means that a test ran for too long, which is neither a pass nor a failure.
var errTimedOut = errors.New("the test did not end")

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{compile: map[string]func() (string, error){}}
	folder := t.TempDir()
	for room, path := range rooms {
		binary := filepath.Join(folder, room+".test")
		s.compile[room] = sync.OnceValues(func() (string, error) {
			out, err := exec.Command("go", "test", "-c", "-o", binary, path).CombinedOutput()
			if err != nil {
				return "", fmt.Errorf("%w: %s", err, out)
			}
			return binary, nil
		})
	}
	return s
}

// killer returns the test with a name: of lockcore, or of another package with its name and a dot
// as prefix.
func (s *suite) killer(name string) *killer {
	room, test, found := strings.Cut(name, ".")
	if !found {
		room, test = "lockcore", name
	}
	return &killer{name: name, try: func(t *testing.T, m edit, again bool, limit time.Duration) (string, error) {
		t.Helper()
		out, failed, err := s.run(room, test, m, limit)
		if again && (failed || err != nil && !errors.Is(err, errTimedOut)) {
			// On a machine that stands still for seconds, a test that uses the clock or a server can fail by
			// itself. That is reported, and says nothing of a mutant.
			first := out
			if out, failed, err = s.run(room, test, m, limit); !failed && err == nil {
				servers.Count(t, "%s failed once and then passed, which is a defect of it: %.2000s", name, strings.Join(strings.Fields(first), " "))
			}
		}
		if !failed {
			out = ""
		}
		return out, err
	}}
}

// run runs a test of a package with a mutant, or without one if the mutant is empty. A failed
// assertion is a failure. A test that does not end within the limit or cannot run is an error.
func (s *suite) run(room, test string, m edit, limit time.Duration) (output string, failed bool, err error) {
	if s.compile[room] == nil {
		return "", false, fmt.Errorf("there is no room %s", room)
	}
	binary, err := s.compile[room]()
	if err != nil {
		return "", false, err
	}
	args := []string{"-test.v", "-test.failfast", "-test.timeout=" + limit.String()}
	if test == everything {
		args = append(args, "-test.short", "-test.parallel=1", "-test.skip=/^redis$|//^redis$")
	} else {
		elements := strings.Split(test, "/")
		for i := range elements {
			elements[i] = "^" + elements[i] + "$"
		}
		args = append(args, "-test.run="+strings.Join(elements, "/"))
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = rooms[room]
	// Numbers and skips that these tests report do not belong to this run.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NOONLOCK_COUNTED=") || strings.HasPrefix(v, "NOONLOCK_SKIPPED=")
	})
	if m.text != "" {
		mutant, err := json.Marshal(map[string]string{"File": m.file, "Text": m.text})
		if err != nil {
			return "", false, err
		}
		cmd.Env = append(cmd.Env, "NOONLOCK_MUTANT="+string(mutant))
	}
	text, err := cmd.CombinedOutput()
	output = string(text)
	var exit *exec.ExitError
	switch {
	case strings.Contains(output, "panic: test timed out"):
		return output, false, errTimedOut
	case err == nil && strings.Contains(output, "--- PASS: "+test):
		return output, false, nil
	case errors.As(err, &exit) && (strings.Contains(output, "--- FAIL: ") || strings.Contains(output, "=== RUN") && strings.Contains(output, "\npanic: ")):
		return output, true, nil
	default: // no such test, a missing server, or a mutant that does not apply
		return output, false, fmt.Errorf("%s neither passes nor fails: %s", test, output)
	}
}
