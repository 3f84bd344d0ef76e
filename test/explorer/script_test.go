package explorer

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/internal/wire"
)

// rooms are the packages whose tests detect changes of scripts, by their names in killers.txt. Their scripts
// are in the folder lua, those of lockcore in that of internal/lock.
var rooms = map[string]string{
	"lockcore":  "../../lockcore",
	"ledger":    "../../singleton/internal/ledger",
	"election":  "../../election",
	"partition": "../../election/partition",
	"cas":       "../../adapters/clientgo/internal/cas",
}

// sharedParts is the directory of the parts that scripts of all packages include.
const sharedParts = "../../internal/wire"

// A script is the text of one file as it is sent, including its parts.
type script struct {
	id     int // equal for equal texts; identifies cached runs
	name   string
	source string
}

// An edit is a file with another text.
type edit struct{ file, text string }

// A library returns scripts and numbers their texts.
type library struct {
	files map[string]string
	rooms map[string][]string // by file: the packages whose tests may detect a change of it

	mu  sync.Mutex
	ids map[string]int
}

func newLibrary(tb testing.TB) *library {
	tb.Helper()
	l := &library{files: map[string]string{}, rooms: map[string][]string{}, ids: map[string]int{}}
	all := slices.Sorted(maps.Keys(rooms))
	l.read(tb, sharedParts, all)
	l.read(tb, "../../internal/lock", []string{"lockcore"})
	for _, room := range all {
		l.read(tb, rooms[room], []string{room})
	}
	return l
}

// read reads the scripts of a package.
func (l *library) read(tb testing.TB, folder string, testedBy []string) {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "lua", "*.lua"))
	must(tb, err)
	if len(paths) == 0 {
		tb.Fatalf("no scripts in %s", folder)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(tb, err)
		name := strings.TrimSuffix(filepath.Base(path), ".lua")
		if l.files[name] != "" {
			tb.Fatalf("there is another %s.lua than %s", name, path)
		}
		l.files[name], l.rooms[name] = string(text), testedBy
	}
}

var includeLine = regexp.MustCompile(`(?m)^--@include (\w+)$`)

// load returns the text of a script with edits applied. A script or a part that does not exist is an error of the
// explorer.
func (l *library) load(name string, edits []edit) script {
	file := func(name string) string {
		text, ok := l.files[name]
		if !ok {
			panic("there is no " + name + ".lua")
		}
		for _, e := range edits {
			if e.file == name {
				text = e.text
			}
		}
		return text
	}
	text := includeLine.ReplaceAllStringFunc(file(name), func(line string) string {
		return file("part_" + strings.TrimPrefix(line, "--@include "))
	})
	var b strings.Builder
	for line := range strings.Lines(text) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
			b.WriteString(line)
		}
	}
	text = b.String()
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := l.ids[text]
	if !ok {
		id = len(l.ids)
		l.ids[text] = id
	}
	return script{id, name, text}
}

// without returns the edit of a file that replaces a text, which the file must have.
func (l *library) without(tb testing.TB, file, old, by string) []edit {
	tb.Helper()
	text := strings.Replace(l.files[file], old, by, 1)
	if text == l.files[file] {
		tb.Fatalf("%s.lua has no %q", file, old)
	}
	return []edit{{file, text}}
}

// sum returns the SHA1 of a script as it is sent.
func (s script) sum() string { return sumOf(wire.Naming(s.source)) }

// sumOf returns the name of a script on the server.
func sumOf(sent string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(sent))) }
