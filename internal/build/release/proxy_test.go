package release

import (
	"archive/zip"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A module is one that a release tags.
type module struct {
	path, dir string
}

// ours matches the modules that no release tags, as scripts/release.sh does.
var ours = regexp.MustCompile("^" + library + "/(internal|test|singleton/sqlonce/sqlcheck)(/|$)")

// published returns the modules of go.work that users can get: all except the tools and
// tests of this repository.
func published(t *testing.T) []module {
	t.Helper()
	var modules []module
	for line := range strings.Lines(goCommand(t, ".", nil, "list", "-m", "-f", "{{.Path}} {{.Dir}}")) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !ours.MatchString(path) {
			modules = append(modules, module{path, dir})
		}
	}
	if len(modules) < 3 || modules[0].path != library {
		t.Fatalf("go.work has the modules %v; want the library first and others", modules)
	}
	return modules
}

// publish writes the files that a module proxy serves for a version of a module.
func publish(t *testing.T, proxy string, m module, version string) {
	t.Helper()
	folder := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	testenv.Must(t, os.MkdirAll(folder, 0o755))
	goMod := testenv.Call(os.ReadFile(filepath.Join(m.dir, "go.mod"))).Must(t)
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".info": `{"Version":"` + version + `","Time":"2026-01-01T00:00:00Z"}`,
		version + ".mod":  string(goMod),
	} {
		testenv.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	file := testenv.Call(os.Create(filepath.Join(folder, version+".zip"))).Must(t)
	defer file.Close()
	archive := zip.NewWriter(file)
	testenv.Must(t, addModule(archive, m, version))
	testenv.Must(t, archive.Close())
}

// addModule adds the module's files to the archive. It skips nested modules and the files
// that Git ignores.
func addModule(archive *zip.Writer, m module, version string) error {
	return filepath.WalkDir(m.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name == "." {
				return nil
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			if strings.HasPrefix(entry.Name(), ".") || name == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := archive.Create(m.path + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return err
	})
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
