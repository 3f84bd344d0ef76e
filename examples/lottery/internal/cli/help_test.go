package cli_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	lottery "github.com/noonlock/noonlock/examples/lottery/internal/serve"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		code, stdout, stderr := run(t.Context(), nil, args...)
		if code != cli.Done || stderr != "" || !strings.Contains(stdout, "lottery verify") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := run(t.Context(), nil, "serve", "--help")
	if code != cli.Done || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	for _, flag := range []string{"redis", "database", "entrants", "schedule", "time-zone", "winners", "identity", "lease", "drain", "http", "stale-after", "log-format"} {
		variable := "LOTTERY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		if !strings.Contains(stdout, "--"+flag+" ") || !strings.Contains(stdout, variable+" ") {
			t.Errorf("the help of serve says nothing of --%s or %s:\n%s", flag, variable, stdout)
		}
	}
}

// The help of each command describes it. The help of the demo describes its steps.
func TestHelpOfCommands(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		"demo":    {"cut off", "a noon passes", "exit code"},
		"serve":   {"within --drain and " + lottery.Ending.String() + ",", "/livez", "/readyz", "/healthz", "/metrics", "SIGTERM"},
		"winners": {"--database"},
		"verify":  {"exit code", "--redis"},
	} {
		code, stdout, stderr := run(t.Context(), nil, command, "--help")
		if code != cli.Done || stderr != "" || !strings.HasPrefix(stdout, "lottery "+command+": ") {
			t.Errorf("%s: exit code %d, %q, %q", command, code, stdout, stderr)
		}
		for _, text := range want {
			if !strings.Contains(stdout, text) {
				t.Errorf("the help of %s does not say %q:\n%s", command, text, stdout)
			}
		}
		_, more, _ := strings.Cut(stdout, "\n")
		for line := range strings.Lines(more) {
			if len(line) > 90 && !strings.HasPrefix(line, "  --") {
				t.Errorf("the help of %s has a line of %d characters: %s", command, len(line), line)
			}
		}
	}
}

// A full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A command whose output is lost fails.
func TestFault113_LostOutput(t *testing.T) {
	t.Parallel()
	p := play(t, 2)
	for _, args := range [][]string{{"help"}, {"verify", "--help"}, {"winners", "--database=sqlite:" + p.file}} {
		var stderr bytes.Buffer
		code := cli.Run(t.Context(), cli.Process{Args: args, Getenv: func(string) string { return "" }, Stdout: full{}, Stderr: &stderr})
		if code != cli.Failed || stderr.String() != "lottery: the output is not complete: no space left on device\n" {
			t.Errorf("%q: exit code %d, %s", args, code, &stderr)
		}
	}
}
