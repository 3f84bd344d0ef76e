package wire

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// sharedFiles are parts that scripts of several packages include.
//
//go:embed lua/*.lua
var sharedFiles embed.FS

// A Script is one Lua file of a package, with its parts included.
type Script struct {
	Name    string
	source  string
	sent    string  // source with the code of Naming
	sha     any     // SHA-1 of sent; a string, but any, so an argument of it needs no allocation
	sharded *Script // variant for a cluster, with sharded messages

	commands []string
}

// Naming returns the text that is sent for a script. Each call has one more argument at the end: the id of the request.
// The reply contains the id and the answer. If the answer is a string or an integer, the reply is a string, which costs
// the server half as much as a list. Lua formats a number with 14 digits, so a longer one is in a list. Formatting is
// slow, so the frequent answer 1 has a case of its own.
func Naming(source string) string {
	return "local request = ARGV[#ARGV] ARGV[#ARGV] = nil local function answer() " + source + `
end
local a = answer()
if a == 1 then
  return request .. ':1'
end
local kind = type(a)
if kind == 'string' then
  return request .. '$' .. a
elseif kind == 'number' and a > -1e14 and a < 1e14 and a % 1 == 0 then
  return request .. ':' .. a
end
return {request, a}`
}

func newScript(name, source string) *Script {
	variant := func(source string) *Script {
		sent := Naming(source)
		sum := sha1.Sum([]byte(sent)) //nolint:gosec // see the import
		return &Script{Name: name, source: source, sent: sent, sha: hex.EncodeToString(sum[:])}
	}
	s := variant(source)
	s.sharded = variant(Sharded(source))
	for _, found := range commandCall.FindAllStringSubmatch(source, -1) {
		s.commands = append(s.commands, found[1])
	}
	slices.Sort(s.commands)
	s.commands = slices.Compact(s.commands)
	return s
}

var commandCall = regexp.MustCompile(`\bredis\.p?call\('(\w+)'`)

// Commands returns the commands that the script calls, each once. The caller must not change the slice.
func (s *Script) Commands() []string { return s.commands }

// Sharded returns the text of a script for a cluster.
func Sharded(source string) string { return strings.ReplaceAll(source, "'PUBLISH'", "'SPUBLISH'") }

// A Loader loads the scripts of one package from its folder lua. It collects the errors, so that a package can fill a
// struct and check once, with Err.
type Loader struct {
	files fs.FS
	err   error
}

// NewLoader returns a Loader that reads lua/*.lua of files.
func NewLoader(files fs.FS) *Loader { return &Loader{files: files} }

// Err returns the errors of all calls of Script.
func (l *Loader) Err() error { return l.err }

var includeLine = regexp.MustCompile(`(?m)^--@include (\w+)$`)

// Script loads lua/<name>.lua. A line "--@include x" is replaced by the file part_x.lua of the Loader, or else of
// package wire.
func (l *Loader) Script(name string) *Script {
	source, err := fs.ReadFile(l.files, "lua/"+name+".lua")
	text := includeLine.ReplaceAllStringFunc(string(source), func(line string) string {
		file := "lua/part_" + strings.TrimPrefix(line, "--@include ") + ".lua"
		part, missing := fs.ReadFile(l.files, file)
		if missing != nil {
			part, missing = sharedFiles.ReadFile(file)
		}
		err = errors.Join(err, missing)
		return string(part)
	})
	if err != nil {
		l.err = errors.Join(l.err, fmt.Errorf("lockcore: script %s: %w", name, err))
		return nil
	}
	return newScript(name, stripComments(text))
}

// stripComments removes whole-line comments, which an EVAL would send each time.
func stripComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Source returns the text of the script, without what Naming adds.
func (s *Script) Source() string { return s.source }

// Keys returns keys as arguments. It allocates memory for each key. A *string is an argument, too, without.
func Keys(keys ...string) []any {
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
	}
	return args
}
