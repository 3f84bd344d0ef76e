package lockcore

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing/fstest"
)

// scriptFiles are the files of the scripts in these tests.
var scriptFiles fs.FS = luaFiles

// UseMutant changes a file of the scripts in these tests, for all Clients to come; text
// is {"File","Old","New"} as JSON. The tables of test/explorer hold such changes, and
// the tests that are to fail with them.
func UseMutant(text string) error {
	files, err := mutated(text)
	if err != nil {
		return err
	}
	scriptFiles = files
	ownScripts = sync.OnceValues(func() (*scripts, error) { return loadScripts(files) })
	return nil
}

func mutated(text string) (fs.FS, error) {
	var m struct{ File, Old, New string }
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, err
	}
	names, err := fs.Glob(luaFiles, "lua/*.lua")
	if err != nil {
		return nil, err
	}
	files, applied := fstest.MapFS{}, false
	for _, name := range names {
		source, err := luaFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if name == "lua/"+m.File+".lua" {
			if n := strings.Count(string(source), m.Old); n != 1 {
				return nil, fmt.Errorf("%s has %d places of %q, want 1", name, n, m.Old)
			}
			source, applied = []byte(strings.Replace(string(source), m.Old, m.New, 1)), true
		}
		files[name] = &fstest.MapFile{Data: source}
	}
	if !applied {
		return nil, fmt.Errorf("there is no %s.lua", m.File)
	}
	return files, nil
}

// ScriptSource is the text of a script as it is sent, for faults that match it.
func ScriptSource(name string) (string, error) {
	s, err := loadScript(scriptFiles, name)
	if err != nil {
		return "", err
	}
	return s.source, nil
}

// ScriptFile is the file of a script as it was written, comments and all.
func ScriptFile(name string) (string, error) {
	text, err := fs.ReadFile(scriptFiles, "lua/"+name+".lua")
	return string(text), err
}

// ScriptNames are the scripts there are, parts left out.
func ScriptNames() ([]string, error) {
	files, err := fs.ReadDir(scriptFiles, "lua")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".lua"); !strings.HasPrefix(name, "part_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Process is the secret part of a Client's values.
func (c *Client) Process() string { return c.process }
