//go:build !race

package explorer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A suite is lockcore's own tests, compiled once, to be run with a mutant.
type suite struct {
	compile func() (string, error)

	mu    sync.Mutex
	sound map[string]func() error // of each test without a mutant
}

func newSuite(tb testing.TB) *suite {
	tb.Helper()
	binary := filepath.Join(tb.TempDir(), "lockcore.test")
	return &suite{sound: map[string]func() error{}, compile: sync.OnceValues(func() (string, error) {
		out, err := exec.Command("go", "test", "-c", "-o", binary, "../../lockcore").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return binary, nil
	})}
}

// kills tells whether a test notices a mutant that it passes without.
func (s *suite) kills(test string, m edit) (bool, error) {
	s.mu.Lock()
	sound := s.sound[test]
	if sound == nil {
		sound = sync.OnceValue(func() error {
			out, failed, err := s.run(test, nil)
			if failed {
				return fmt.Errorf("without a mutant %s fails: %s", test, out)
			}
			return err
		})
		s.sound[test] = sound
	}
	s.mu.Unlock()
	if err := sound(); err != nil {
		return false, err
	}
	mutant, err := json.Marshal(map[string]string{"File": m.file, "Old": m.old, "New": m.new})
	if err != nil {
		return false, err
	}
	_, failed, err := s.run(test, mutant)
	return failed, err
}

func (s *suite) run(test string, mutant []byte) (output string, failed bool, err error) {
	binary, err := s.compile()
	if err != nil {
		return "", false, err
	}
	elements := strings.Split(test, "/")
	for i := range elements {
		elements[i] = "^" + elements[i] + "$"
	}
	cmd := exec.Command(binary, "-test.run", strings.Join(elements, "/"), "-test.v", "-test.timeout", time.Minute.String())
	cmd.Dir = "../../lockcore"
	cmd.Env = append(os.Environ(), "NOONLOCK_MUTANT="+string(mutant))
	text, err := cmd.CombinedOutput()
	output = string(text)
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(output, "--- PASS: "):
		return output, false, nil
	case errors.As(err, &exit) && (strings.Contains(output, "--- FAIL: ") || strings.Contains(output, "panic: test timed out")):
		return output, true, nil
	default: // no such test, a server is missing, the mutant does not fit
		return output, false, fmt.Errorf("%s neither passes nor fails: %s", test, output)
	}
}
