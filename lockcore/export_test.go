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
// is {"File","Text"} as JSON. test/explorer makes such changes, and wants a test to fail.
func UseMutant(text string) error {
	var m struct{ File, Text string }
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	names, err := fs.Glob(luaFiles, "lua/*.lua")
	if err != nil {
		return err
	}
	files, changed := fstest.MapFS{}, "lua/"+m.File+".lua"
	for _, name := range names {
		source, err := luaFiles.ReadFile(name)
		if err != nil {
			return err
		}
		files[name] = &fstest.MapFile{Data: source}
	}
	if files[changed] == nil {
		return fmt.Errorf("there is no %s", changed)
	}
	files[changed].Data = []byte(m.Text)
	scriptFiles = files
	ownScripts = sync.OnceValues(func() (*scripts, error) { return loadScripts(files) })
	return nil
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
