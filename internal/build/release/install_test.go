// Package release tests that the modules of this repository can be released. It contains
// only tests: they publish the tree on a local module proxy, as if it were tagged, and
// install each module from there.
package release

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// library is the module that all others require.
const library = "github.com/noonlock/noonlock"

// nextVersion returns the version of the library that the other modules require.
func nextVersion(t *testing.T, modules []module) string {
	t.Helper()
	var mod struct {
		Require []struct{ Path, Version string }
	}
	testenv.Must(t, json.Unmarshal([]byte(goCommand(t, modules[1].dir, nil, "mod", "edit", "-json")), &mod))
	for _, r := range mod.Require {
		if r.Path == library {
			return r.Version
		}
	}
	t.Fatalf("%s does not require the library", modules[1].path)
	return ""
}

// Users get each module by its path: `go get` in an empty module finds all of its packages
// and their imports, and `go install` builds the modules that are programs.
func TestModulesCanBeInstalled(t *testing.T) {
	t.Parallel()
	if os.Getenv("NOONLOCK_INSTALL") == "" {
		t.Skip("it builds all programs again, which takes minutes: .ci/run runs it")
	}
	modules := published(t)
	version := nextVersion(t, modules)
	proxy := t.TempDir()
	for _, m := range modules {
		publish(t, proxy, m, version)
	}
	cache := strings.TrimSpace(goCommand(t, ".", nil, "env", "GOMODCACHE"))
	upstream := strings.TrimSpace(goCommand(t, ".", nil, "env", "GOPROXY"))
	bin := t.TempDir()
	env := []string{
		"GOWORK=off", "GOBIN=" + bin,
		// The user's module cache may already contain this version.
		"GOMODCACHE=" + t.TempDir(),
		"GOPROXY=file://" + proxy + ",file://" + cache + "/cache/download," + upstream,
		"GOPRIVATE=", "GONOPROXY=",
		// The dependencies were verified when the user's module cache fetched them.
		"GOSUMDB=off",
		// With -trimpath, the build cache serves packages from another directory.
		"GOFLAGS=-modcacherw -trimpath -buildvcs=false", "CGO_ENABLED=0",
	}
	for _, m := range modules {
		empty := t.TempDir()
		goCommand(t, empty, env, "mod", "init", "example.com/empty")
		goCommand(t, empty, env, "get", m.path+"@"+version)
		packages := goCommand(t, empty, env, "list", "-mod=mod", "-deps", "-f", "{{.Name}} {{.ImportPath}}", m.path+"/...")
		if !strings.Contains(packages, " "+m.path) {
			t.Errorf("%s has no packages", m.path)
		}
		if !strings.Contains("\n"+packages, "\nmain "+m.path+"\n") {
			continue
		}
		goCommand(t, empty, env, "install", "-ldflags=-s -w", m.path+"@"+version)
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, path.Base(m.path)), "-h").CombinedOutput()
		if len(out) == 0 || bytes.Contains(out, []byte("panic:")) {
			t.Errorf("%s -h: %v, and it prints %q", m.path, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(bin, "lottery")); err != nil {
		t.Errorf("the lottery's program was not installed: %v", err)
	}
}
