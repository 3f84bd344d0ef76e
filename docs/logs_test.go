package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A logCall is a call of a logger.
type logCall struct {
	message ast.Expr // nil: WithValues
	values  []ast.Expr
	spread  bool // the last value is a slice of values
}

// asLogCall returns the call of a logger, or of a function that passes its arguments to one.
func asLogCall(call *ast.CallExpr) (c logCall, ok bool) {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok && (of.Name == "http" || of.Name == "slog") {
			return c, false // not a logr.Logger
		}
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	at, known := map[string]int{"WithValues": -1, "Info": 0, "Error": 1, "Log": 2}[name] // of the message
	if !known || len(call.Args) <= at {
		return c, false
	}
	c.values, c.spread = call.Args[at+1:], call.Ellipsis != token.NoPos
	if at >= 0 {
		c.message = call.Args[at]
		if text := beginning(c.message); text == "" && constant(c.message) == "" {
			return c, false // another function with such a name
		}
	}
	return c, true
}

// constant returns the name of a constant or variable.
func constant(of ast.Expr) string {
	if id, ok := of.(*ast.Ident); ok && id.Name == "message" {
		return id.Name
	}
	return ""
}

// isError reports whether a value of a log line is an error, by the name of its variable or
// function.
func isError(of ast.Expr) bool {
	switch of := of.(type) {
	case *ast.CallExpr:
		if f, ok := of.Fun.(*ast.SelectorExpr); ok {
			return f.Sel.Name == "Error" || f.Sel.Name == "Cause" || f.Sel.Name == "Err" || f.Sel.Name == "Join"
		}
	case *ast.SelectorExpr:
		return isError(of.Sel)
	case *ast.IndexExpr:
		return isError(of.X)
	case *ast.Ident:
		return regexp.MustCompile(`^(err|errs|cause|lost|failure|err[A-Z]\w*|Err[A-Z]\w*)$`).MatchString(of.Name)
	}
	return false
}

// checkValues asserts that keys are constant, and that an error has the key "err".
func checkValues(t *testing.T, at token.Position, values []ast.Expr) {
	t.Helper()
	for i := 0; i+1 < len(values); i += 2 {
		key := beginning(values[i])
		if id, ok := values[i].(*ast.Ident); ok && id.Name == "key" {
			key = "tick" // or "triggered": see logged in singleton
		}
		switch {
		case !regexp.MustCompile(`^[a-z][a-zA-Z]*$`).MatchString(key):
			t.Errorf("%s: key %d is not a constant word", at, i/2)
		case isError(values[i+1]) != (key == "err"):
			t.Errorf("%s: the key of an error is %q, and of nothing else; this one is %q", at, "err", key)
		}
	}
	if len(values)%2 != 0 {
		t.Errorf("%s: a key has no value", at)
	}
}

// checkSpread asserts the same of values that are collected first. They are built by literals
// and append, in a variable with the name about, or were passed to the function.
func checkSpread(t *testing.T, at token.Position, of ast.Expr) {
	t.Helper()
	switch of := of.(type) {
	case *ast.Ident:
		if !slices.Contains([]string{"about", "keysAndValues", "values"}, of.Name) {
			t.Errorf("%s: the values %s are not called about", at, of.Name)
		}
	case *ast.CompositeLit:
		checkValues(t, at, of.Elts)
	case *ast.CallExpr:
		if f, ok := of.Fun.(*ast.Ident); !ok || f.Name != "append" {
			t.Errorf("%s: the values come from a function", at)
			return
		}
		checkSpread(t, at, of.Args[0])
		if of.Ellipsis != token.NoPos {
			checkSpread(t, at, of.Args[1])
		} else {
			checkValues(t, at, of.Args[1:])
		}
	}
}

// Every log line has a constant text of one line and constant keys. Errors have the key
// "err", which logr's Error also has with slog, so that one search finds all of them.
func TestLogLinesAreAlike(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, top := range []string{"lockcore", "election", "singleton", "healthz", "statusz", "doctor", "adapters", "internal", "examples", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(filepath.ToSlash(path), "internal/logqueue/") { // it passes lines on
				return err
			}
			files := token.NewFileSet()
			parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					if id, ok := n.Lhs[0].(*ast.Ident); ok && id.Name == "about" {
						checkSpread(t, files.Position(n.Pos()), n.Rhs[0])
					}
				case *ast.CallExpr:
					c, ok := asLogCall(n)
					if !ok {
						break
					}
					checked++
					at := files.Position(n.Pos())
					if c.message != nil {
						if text := beginning(c.message); strings.ContainsRune(text, '\n') {
							t.Errorf("%s: the text %s has several lines", at, strconv.Quote(text))
						}
					}
					if last := len(c.values) - 1; c.spread {
						checkSpread(t, at, c.values[last])
						c.values = c.values[:last]
					}
					checkValues(t, at, c.values)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 80 {
		t.Errorf("only %d calls of loggers were found", checked)
	}
}
