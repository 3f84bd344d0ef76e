package release

import (
	"encoding/json"
	"strings"
	"testing"
)

// library is the module that the others require.
const library = "github.com/noonlock/noonlock"

// goMod is what these tests read of `go mod edit -json`.
type goMod struct {
	Go               string
	Require          []struct{ Path, Version string }
	Replace, Exclude []any
}

func readGoMod(t *testing.T, m module) goMod {
	t.Helper()
	var mod goMod
	if err := json.Unmarshal([]byte(goCommand(t, m.dir, nil, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

// nextVersion returns the version of the library that the other modules require.
func nextVersion(t *testing.T, modules []module) string {
	t.Helper()
	for _, m := range modules[1:] {
		for _, r := range readGoMod(t, m).Require {
			if r.Path == library {
				return r.Version
			}
		}
	}
	t.Fatal("no module requires the library")
	return ""
}

// A replace or an exclude in go.mod keeps `go install` from installing a module, and a
// version that differs from module to module cannot be tagged in one go.
func TestModulesAgree(t *testing.T) {
	t.Parallel()
	modules := published(t)
	version := nextVersion(t, modules)
	want := readGoMod(t, modules[0]).Go
	for _, m := range modules {
		mod := readGoMod(t, m)
		if len(mod.Replace) > 0 || len(mod.Exclude) > 0 {
			t.Errorf("%s: go.mod has replace or exclude directives", m.path)
		}
		if mod.Go != want {
			t.Errorf("%s is for Go %s, the library for Go %s", m.path, mod.Go, want)
		}
		for _, r := range mod.Require {
			if (r.Path == library || strings.HasPrefix(r.Path, library+"/")) && r.Version != version {
				t.Errorf("%s requires %s %s; other modules require %s", m.path, r.Path, r.Version, version)
			}
		}
	}
}
