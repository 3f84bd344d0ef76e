package docs_test

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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

// logged returns the keys and values of a call of a logger, or of a function that passes its arguments to one. The text
// of a line must be constant: other functions have such names, too.
func logged(call *ast.CallExpr) (text string, values []ast.Expr, ok bool) {
	var name string
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok && (of.Name == "http" || of.Name == "slog") {
			return "", nil, false // not a logr.Logger
		}
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	at, known := map[string]int{"WithValues": -1, "Info": 0, "Error": 1, "Log": 2}[name] // of the text
	if !known || len(call.Args) <= at {
		return "", nil, false
	}
	if values = call.Args[at+1:]; call.Ellipsis != token.NoPos {
		values = values[:len(values)-1]
	}
	if at >= 0 {
		text = beginning(call.Args[at])
		if id, isName := call.Args[at].(*ast.Ident); text == "" && (!isName || id.Name != "message") {
			return "", nil, false
		}
	}
	return text, values, true
}

// Every log line has a constant text of one line and constant keys. Errors have the key
// "err", which logr's Error also has with slog, so that one search finds all of them.
func TestLogLinesAreAlike(t *testing.T) {
	t.Parallel()
	checked := 0
	sources(t, []string{"lockcore", "election", "singleton", "healthz", "statusz", "doctor", "adapters", "internal", "examples", "cmd"}, func(path string, files *token.FileSet, parsed *ast.File) {
		if strings.Contains(filepath.ToSlash(path), "internal/logqueue/") { // it passes lines on
			return
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if text, values, ok := logged(call); ok {
					checked++
					checkValues(t, files.Position(n.Pos()), values)
					if strings.ContainsRune(text, '\n') {
						t.Errorf("%s: the text %q has several lines", files.Position(n.Pos()), text)
					}
				}
			}
			return true
		})
	})
	if checked < 80 {
		t.Errorf("only %d calls of loggers were found", checked)
	}
}
