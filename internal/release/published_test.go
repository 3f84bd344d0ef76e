package release

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// module is a module that a release tags.
type module struct {
	path, dir string
}

// published returns the modules of go.work that others can get: all except tools and
// tests of this repository.
func published(t *testing.T) []module {
	t.Helper()
	var modules []module
	for line := range strings.Lines(goCommand(t, ".", nil, "list", "-m", "-f", "{{.Path}} {{.Dir}}")) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(path, library+"/internal/") && !strings.HasPrefix(path, library+"/test/") {
			modules = append(modules, module{path, dir})
		}
	}
	if len(modules) < 3 || modules[0].path != library {
		t.Fatalf("go.work has the modules %v; want the library first and others", modules)
	}
	return modules
}

// goCommand runs the go command in a folder and returns what it prints.
func goCommand(t *testing.T, dir string, env []string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(arguments, " "), err, out, stderr.String())
	}
	return string(out)
}
