package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// rooms are the packages whose users see the errors of a folder and of those below it: the
// longest one counts.
var rooms = map[string]string{
	"lockcore": "lockcore", "lockcore/lockcoretest": "lockcoretest",
	"election": "election", "election/partition": "partition",
	"singleton": "singleton", "singleton/schedule": "schedule", "singleton/sqlonce": "sqlonce",
	"singleton/internal/ticks": "schedule",
	"healthz":                  "healthz",
	"statusz":                  "statusz",
	"doctor":                   "doctor",
	"redisurl":                 "redisurl",
	"adapters/clientgo":        "clientgo",
	"internal/quorum":          "lockcore", "internal/several": "lockcore", "internal/cluster": "lockcore",
	"internal/wire": "lockcore", "internal/lease": "lockcore", "internal/lock": "lockcore",
	// Several packages use these, and join their errors to one of their own.
	"internal/holding": "noonlock", "internal/input": "noonlock", "internal/logqueue": "noonlock",
	"internal/readiness": "noonlock", "internal/registry": "noonlock", "internal/retry": "noonlock",
	"internal/stopping": "noonlock",
	// Programs, and parts of tests.
	"adapters/clientgo/example": "", "internal/console/login": "", "internal/console/overview": "", "internal/console/output": "",
	"internal/build/ociimage": "", "internal/build/release": "", "internal/testing/servers": "", "internal/testing/testenv": "",
}

// roomOf returns the package whose users see the errors of a folder.
func roomOf(folder string) (name string, ok bool) {
	for ; folder != "."; folder = filepath.ToSlash(filepath.Dir(folder)) {
		if name, ok = rooms[folder]; ok {
			return name, true
		}
	}
	return "", false
}

// errorText returns the constant beginning of the text of an error that a call makes.
func errorText(call *ast.CallExpr) (text string, found bool) {
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	from, ok := of.X.(*ast.Ident)
	if !ok || from.Name+"."+of.Sel.Name != "errors.New" && from.Name+"."+of.Sel.Name != "fmt.Errorf" {
		return "", false
	}
	return beginning(call.Args[0]), true
}

// beginning returns the first constant part of a text.
func beginning(of ast.Expr) (text string) {
	switch of := of.(type) {
	case *ast.BasicLit:
		text, _ = strconv.Unquote(of.Value)
	case *ast.BinaryExpr:
		return beginning(of.X)
	case *ast.CallExpr: // fmt.Sprintf
		if len(of.Args) > 0 {
			return beginning(of.Args[0])
		}
	}
	return text
}

// sources parses the files of folders, without tests.
func sources(t *testing.T, tops []string, see func(path string, files *token.FileSet, parsed *ast.File)) {
	t.Helper()
	for _, top := range tops {
		testenv.Must(t, filepath.WalkDir(filepath.Join("..", top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err == nil {
				see(path, files, parsed)
			}
			return err
		}))
	}
}

// Every error begins with the package whose users see it, or with an error that it wraps.
func TestErrorsBeginWithTheirPackage(t *testing.T) {
	t.Parallel()
	checked := 0
	sources(t, []string{"lockcore", "election", "singleton", "healthz", "doctor", "redisurl", "statusz", "adapters", "internal"}, func(path string, files *token.FileSet, parsed *ast.File) {
		folder, _ := strings.CutPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		room, known := roomOf(folder)
		if !known {
			t.Errorf("%s: the errors of this folder belong to no package; add it to rooms", path)
		}
		if room == "" {
			return
		}
		begins := regexp.MustCompile(`^(` + room + `: |%w|%s: )`) // %s: the name of a package
		check := func(at token.Pos, text string) {
			checked++
			if !begins.MatchString(text) {
				t.Errorf("%s: the error %q does not begin with %q", files.Position(at), text, room+": ")
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if text, found := errorText(n); found {
					check(n.Pos(), text)
				}
			case *ast.FuncDecl:
				if n.Recv == nil || n.Name.Name != "Error" {
					break
				}
				ast.Inspect(n.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						if text := beginning(r.Results[0]); text != "" {
							check(r.Pos(), text)
						}
					}
					return true
				})
			}
			return true
		})
	})
	if checked < 150 {
		t.Errorf("only %d errors were found", checked)
	}
}
