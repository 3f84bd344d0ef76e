package docs_test

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Each exported type, function and method has an example, or a program of the documentation uses it. They and the fields
// of configurations are few, and their documentation does not speak of internal packages.
func TestNamesHaveExamples(t *testing.T) {
	t.Parallel()
	const module = "github.com/noonlock/noonlock/"
	packages := []string{module + "lockcore", module + "election", module + "election/partition", module + "singleton", module + "lockcore/lockcoretest"}
	compiled := map[string]string{} // the files of all packages that examples import
	cmd := exec.Command("go", "list", "-export", "-deps", "-test", "-f", "{{.ImportPath}}\t{{.Export}}", ".", "./firsthour", "../examples/leader", "../examples/quickstart")
	cmd.Stderr = os.Stderr
	list := testenv.Call(cmd.Output()).Must(t)
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		compiled[path] = file
	}
	files := token.NewFileSet()
	load := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })

	used := map[string]bool{}
	var see func(of types.Type)
	see = func(of types.Type) {
		switch of := of.(type) {
		case *types.Pointer:
			see(of.Elem())
		case *types.Slice:
			see(of.Elem())
		case *types.Chan:
			see(of.Elem())
		case *types.Map:
			see(of.Elem())
		case *types.Named:
			key := of.Obj().Name() + " of " + path(of.Obj())
			if fields, ok := of.Underlying().(*types.Struct); ok && !used[key] && strings.HasPrefix(key, of.Obj().Name()+" of "+module) {
				used[key] = true
				for f := range fields.Fields() {
					see(f.Type())
				}
			}
			used[key] = true
		}
	}
	for _, pattern := range []string{"../lockcore/*example_test.go", "../election/*example_test.go", "../election/partition/*example_test.go", "../singleton/*example_test.go", "../lockcore/lockcoretest/*example_test.go", "../examples/*/main.go", "../examples/lottery/internal/noon/noon.go", "firsthour/main.go", "readme/main.go", "testing_test.go", "migrating_test.go"} {
		names := testenv.Call(filepath.Glob(pattern)).Must(t)
		for _, name := range names {
			text := testenv.Call(os.ReadFile(name)).Must(t)
			text, _, _ = bytes.Cut(text, []byte("// End of the code of")) // then come tests
			file := testenv.Call(parser.ParseFile(files, name, text, parser.SkipObjectResolution)).Must(t)
			info := types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
			cfg := types.Config{Importer: load, Error: func(error) {}} // of what other files declare, for example
			_, _ = cfg.Check(name, files, []*ast.File{file}, &info)
			for _, of := range info.Uses {
				if f, ok := of.(*types.Func); ok {
					used[f.FullName()] = true
				}
			}
			for _, of := range info.Types {
				see(of.Type)
			}
		}
	}

	// most is the number of names of each package; it falls when names go. Those of the packages that locks, electors
	// and jobs need are at most 138 together.
	most := map[string]int{"lockcore": 57, "election": 23, "partition": 11, "singleton": 47, "lockcoretest": 34}
	fields := 0
	for _, of := range packages {
		p := testenv.Call(load.Import(of)).Must(t)
		found := 0
		check := func(name, key string) {
			if found++; !used[key] && !slices.Contains([]string{"Error", "Is", "Unwrap", "MarshalJSON"}, name[strings.IndexByte(name, '.')+1:]) {
				t.Errorf("no example uses %s.%s", p.Name(), name)
			}
		}
		for _, name := range p.Scope().Names() {
			switch of := p.Scope().Lookup(name).(type) {
			case *types.Func:
				if of.Exported() {
					check(name, of.FullName())
				}
			case *types.TypeName:
				named, ok := of.Type().(*types.Named)
				if !of.Exported() || !ok {
					continue
				}
				check(name, name+" of "+path(of))
				for m := range named.Methods() {
					if m.Exported() {
						check(name+"."+m.Name(), m.FullName())
					}
				}
				if config, ok := named.Underlying().(*types.Struct); ok && (strings.HasSuffix(name, "Config") || name == "Callbacks") {
					fields += config.NumFields()
				}
			}
		}
		if found < most[p.Name()]/2 || found > most[p.Name()] {
			t.Errorf("%s has %d names, want at most %d", p.Name(), found, most[p.Name()])
		}
		text := testenv.Call(exec.Command("go", "doc", "-all", of).CombinedOutput()).Must(t)
		text = regexp.MustCompile(` = \w+\.Err`).ReplaceAll(text, nil) // where the documentation of an error is complete
		if word := regexp.MustCompile(`\b(lock|wire|ledger|ticks|several)\.[A-Z]\w*|internal/\w+`).Find(text); word != nil {
			t.Errorf("the documentation of %s has a word of an internal package: %s", p.Name(), word)
		}
	}
	if fields < 30 || fields > 58 {
		t.Errorf("the configurations have %d fields, want at most 58", fields)
	}
}

// path returns the package of an object.
func path(of types.Object) string {
	if of.Pkg() == nil {
		return ""
	}
	return of.Pkg().Path()
}
