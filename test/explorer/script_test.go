package explorer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// rooms are the packages whose tests detect changes of scripts, by their names in killers.txt. Their scripts
// are in the folder lua, those of lockcore in that of internal/lock.
var rooms = map[string]string{
	"lockcore": "../../lockcore",
	"ledger":   "../../singleton/internal/ledger",
	"election": "../../election",
	"cas":      "../../adapters/clientgo/internal/cas",
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

func newLibrary() (*library, error) {
	l := &library{files: map[string]string{}, rooms: map[string][]string{}, ids: map[string]int{}}
	all := slices.Sorted(maps.Keys(rooms))
	err := l.read(sharedParts, all)
	for _, room := range all {
		folder := rooms[room]
		if room == "lockcore" {
			folder = "../../internal/lock"
		}
		err = errors.Join(err, l.read(folder, []string{room}))
	}
	return l, err
}

// read reads the scripts of a package.
func (l *library) read(folder string, testedBy []string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "lua", "*.lua"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no scripts in %s", folder)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".lua")
		if l.files[name] != "" {
			return fmt.Errorf("there is another %s.lua than %s", name, path)
		}
		l.files[name], l.rooms[name] = string(text), testedBy
	}
	return nil
}

var includeLine = regexp.MustCompile(`(?m)^--@include (\w+)$`)

// load returns the text of a script with edits applied.
func (l *library) load(name string, edits []edit) (script, error) {
	var wrong error
	file := func(name string) string {
		text, ok := l.files[name]
		if !ok {
			wrong = fmt.Errorf("no file %s.lua", name)
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
	if wrong != nil {
		return script{}, wrong
	}
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
	return script{id, name, text}, nil
}
