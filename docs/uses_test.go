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

// upward has the number of upward uses in a package: of pairs of files of which the lower uses the upper.
var upward = map[string]int{
	"adapters/clientgo":  1,
	"examples/lottery":   1,
	"internal/lease":     2,
	"internal/wire/conn": 1,
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
			order, up := ordered(files, usesOf(t, p[0], p[3], files, exports))
			if len(up) != upward[path] {
				t.Errorf("%s has %d upward uses, want %d: %s; the files from the top: %s",
					path, len(up), upward[path], strings.Join(up, ", "), strings.Join(order, " "))
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

// ordered returns an order of the files, from the top, with few upward uses, and these. From each of several first
// orders, it moves one file at a time to where this saves most, until no move helps.
func ordered(files []string, uses map[[2]string]bool) (best, up []string) {
	for start := range files {
		order, left := slices.Concat(files[start:], files[:start]), len(files)
		for i := 0; left > 0; i, left = i+1, left-1 {
			name := files[i%len(files)]
			was := slices.Index(order, name)
			rest := slices.Delete(slices.Clone(order), was, was+1)
			pairs, place := make([]int, len(files)), 0 // upward uses at each place, compared with the place at the top
			for i, other := range rest {
				pairs[i+1] = pairs[i]
				if uses[[2]string{other, name}] {
					pairs[i+1]--
				}
				if uses[[2]string{name, other}] {
					pairs[i+1]++
				}
				if pairs[i+1] < pairs[place] {
					place = i + 1
				}
			}
			if pairs[place] < pairs[was] {
				order, left = slices.Insert(rest, place, name), len(files)
			}
		}
		var found []string
		for i, above := range order {
			for _, below := range order[i+1:] {
				if uses[[2]string{below, above}] {
					found = append(found, below+" "+above)
				}
			}
		}
		if best == nil || len(found) < len(up) {
			best, up = order, found
		}
	}
	return best, up
}
