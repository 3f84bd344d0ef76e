package docs_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// upward has the uses of a package that go up: a file, and the upper file that it uses.
var upward = map[string][][2]string{
	"adapters/clientgo":  {{"lock.go", "leadership.go"}},
	"examples/lottery":   {{"serve.go", "main.go"}},
	"internal/lease":     {{"lease.go", "keeper.go"}, {"lease.go", "renewals.go"}},
	"internal/wire/conn": {{"pipe.go", "line.go"}},
}

// The files of a package have an order in which a file uses only files below it, with the exceptions in upward.
func TestUsesGoDown(t *testing.T) {
	for _, folder := range []string{"..", "../examples/lottery", "../adapters/clientgo", "../cmd/noonctl"} {
		cmd := exec.Command("go", "list", "-export", "-deps", "-f",
			`{{.ImportPath}}|{{.Export}}|{{.DepOnly}}|{{.Dir}}|{{join .GoFiles " "}}`, "./...")
		cmd.Dir, cmd.Stderr = folder, os.Stderr
		var packages [][]string
		exports := map[string]string{} // files with the types of a package
		for line := range strings.Lines(string(testenv.Call(cmd.Output()).Must(t))) {
			p := strings.Split(strings.TrimSpace(line), "|")
			exports[p[0]] = p[1]
			if p[2] == "false" {
				packages = append(packages, p)
			}
		}
		for _, p := range packages {
			path := strings.TrimPrefix(p[0], "github.com/noonlock/noonlock/")
			if apart(path) && !strings.HasPrefix(path, "cmd/") {
				continue
			}
			files := strings.Fields(p[4])
			uses := usesOf(t, p[0], p[3], files, exports)
			for _, use := range upward[path] {
				if !uses[use] || len(ring(files, uses)) == 0 {
					t.Errorf("%s: the use %q is in no ring; it must be removed from upward", path, use)
				}
				delete(uses, use)
			}
			if files := ring(files, uses); len(files) > 0 {
				t.Errorf("%s: there is a ring of uses among these files: %s", path, strings.Join(files, " "))
			}
		}
	}
}

// usesOf returns which file of a package uses which other file. The call of a function in a field is also a use of
// each file that sets the field.
func usesOf(t *testing.T, path, dir string, names []string, exports map[string]string) map[[2]string]bool {
	t.Helper()
	fset, info := token.NewFileSet(), &types.Info{Uses: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, name := range names {
		files = append(files, testenv.Call(parser.ParseFile(fset, filepath.Join(dir, name), nil, 0)).Must(t))
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	pkg := testenv.Call((&types.Config{Importer: imports}).Check(path, fset, files, info)).Must(t)
	uses, called, set := map[[2]string]bool{}, map[types.Object][]string{}, map[types.Object][]string{}
	for i, file := range files {
		note := func(fields map[types.Object][]string, e ast.Expr) {
			if s, ok := e.(*ast.SelectorExpr); ok {
				e = s.Sel
			}
			name, _ := e.(*ast.Ident)
			if v, ok := info.Uses[name].(*types.Var); ok && v.IsField() && v.Pkg() == pkg {
				fields[v.Origin()] = append(fields[v.Origin()], names[i])
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if o := info.Uses[n]; o != nil && o.Pkg() == pkg {
					uses[[2]string{names[i], filepath.Base(fset.File(o.Pos()).Name())}] = true
				}
			case *ast.CallExpr:
				note(called, n.Fun)
			case *ast.KeyValueExpr:
				note(set, n.Key)
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					note(set, e)
				}
			}
			return true
		})
	}
	for field, callers := range called {
		for _, caller := range callers {
			for _, setter := range set[field] {
				uses[[2]string{caller, setter}] = true
			}
		}
	}
	return uses
}

// ring returns the files that use each other in a ring, and the files below these. It removes the upper files one by one.
func ring(files []string, uses map[[2]string]bool) []string {
	for {
		used := slices.DeleteFunc(slices.Clone(files), func(file string) bool {
			return !slices.ContainsFunc(files, func(user string) bool { return user != file && uses[[2]string{user, file}] })
		})
		if len(used) == len(files) {
			return used
		}
		files = used
	}
}
