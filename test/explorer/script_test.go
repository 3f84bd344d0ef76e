package explorer

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// scriptFolders are where scripts and their parts are.
var scriptFolders = []string{"../../internal/wire/lua", "../../lockcore/lua"}

// A script is the text of one file as it is sent, with its parts included.
type script struct {
	id     int // the same for the same text, for what is remembered of its runs
	name   string
	source string
}

// An edit is a file with another text.
type edit struct{ file, text string }

// A library hands out scripts, and numbers their texts.
type library struct {
	files map[string]string

	mu  sync.Mutex
	ids map[string]int
}

func newLibrary() (*library, error) {
	var paths []string
	for _, folder := range scriptFolders {
		found, err := filepath.Glob(filepath.Join(folder, "*.lua"))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no scripts in %s", folder)
		}
		paths = append(paths, found...)
	}
	l := &library{files: map[string]string{}, ids: map[string]int{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".lua")
		if l.files[name] != "" {
			return nil, fmt.Errorf("there is another %s.lua than %s", name, path)
		}
		l.files[name] = string(text)
	}
	return l, nil
}

var includeLine = regexp.MustCompile(`(?m)^--@include (\w+)$`)

// load is the text of a script with edits applied.
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
