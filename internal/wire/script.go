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

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// sharedFiles are the parts that scripts of several packages include.
//
//go:embed lua/*.lua
var sharedFiles embed.FS

// A Script is one Lua file of a package, with its parts included.
type Script struct {
	Name    string
	source  string
	sent    string  // see Naming
	sha     any     // of sent: a string; arguments of commands are of this type
	sharded *Script // for a cluster: its messages go to the nodes of one slot only

	commands []string // see Commands
}

// Naming returns the text that is sent for a script. Each call of it has one more argument at the end: the id of
// the request. The reply has the id and the answer, in a list or in a text if the answer is
// a text or a whole number. That costs the server half as much as a list. Lua writes a number with 14 digits,
// so a longer one is in a list. It takes long to write one, so the most frequent one is here.
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
	one := func(source string) *Script {
		sent := Naming(source)
		sum := sha1.Sum([]byte(sent)) //nolint:gosec // see the import
		return &Script{Name: name, source: source, sent: sent, sha: hex.EncodeToString(sum[:])}
	}
	s := one(source)
	s.sharded = one(Sharded(source))
	for _, found := range commandCall.FindAllStringSubmatch(source, -1) {
		s.commands = append(s.commands, found[1])
	}
	slices.Sort(s.commands)
	s.commands = slices.Compact(s.commands)
	return s
}

var commandCall = regexp.MustCompile(`\bredis\.p?call\('(\w+)'`)

// Commands returns the commands that the script calls, each once. The caller must not change
// them.
func (s *Script) Commands() []string { return s.commands }

// Sharded returns the text of a script for a cluster.
func Sharded(source string) string { return strings.ReplaceAll(source, "'PUBLISH'", "'SPUBLISH'") }

// A Loader loads the scripts of one package from its folder lua. It keeps the errors, so
// that a package can fill a struct and check once, with Err.
type Loader struct {
	files fs.FS
	err   error
}

// NewLoader returns a Loader that reads lua/*.lua of files.
func NewLoader(files fs.FS) *Loader { return &Loader{files: files} }

// Err returns the errors of all calls of Script.
func (l *Loader) Err() error { return l.err }

var includeLine = regexp.MustCompile(`(?m)^--@include (\w+)$`)

// Script loads lua/<name>.lua. A line "--@include x" is replaced by the file part_x.lua of
// the package, or else of this one.
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

// Keys returns keys as arguments. Pointers to them are arguments, too, and need no memory.
func Keys(keys ...string) []any {
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
	}
	return args
}

// Call returns a request that runs the script. All keys belong to one name.
func (s *Script) Call(keys []any, argv ...any) Request {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", s.sha, len(keys))
	args = append(args, keys...)
	return Request{name: s.Name, script: s, Command: conn.Command{Args: append(args, argv...), Named: true}}
}

// OddReply returns the error for a reply that the script never gives.
func (s *Script) OddReply(reply any) error {
	return &ReplyError{Script: s.Name, Reply: shape(reply)}
}

// InCluster returns the request for a cluster. Its script has one more key, which never
// exists. While a slot moves, some of its keys are at another node, and a node refuses a
// script of several keys if one of them is missing (TRYAGAIN, or ASK and then TRYAGAIN).
// So no script runs on a slot that moves. Otherwise it could see a part of its keys, or
// fail half-way when it writes a key that it has deleted before.
func (r Request) InCluster() Request {
	if r.script == nil {
		return r
	}
	r = r.WithShardedMessages()
	n := r.Args[2].(int)
	r.Args[2] = n + 1
	r.Args = slices.Insert(r.Args, 3+n, any(textOf(r.Args[3])+neverKey))
	return r
}

// WithShardedMessages returns the request with the script for a cluster.
func (r Request) WithShardedMessages() Request {
	if r.script == nil {
		return r
	}
	r.Args = slices.Clone(r.Args)
	r.Args[1] = r.script.sharded.sha
	r.script = r.script.sharded
	return r
}

// neverKey is the end of the key that never exists.
const neverKey = ":never"
