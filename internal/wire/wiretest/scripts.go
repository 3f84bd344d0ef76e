// Package wiretest helps packages to test the scripts that they run through wire.
package wiretest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"
)

// Edit returns the scripts with one file changed: text is {"File","Text"} as JSON.
// test/explorer makes such changes, and expects a test to fail. To change a part that several
// packages share, Edit adds a copy of it to the scripts of this package.
func Edit(files fs.FS, text string) (fs.FS, error) {
	var m struct{ File, Text string }
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "lua/*.lua")
	if err != nil {
		return nil, err
	}
	edited, changed := fstest.MapFS{}, "lua/"+m.File+".lua"
	for _, name := range names {
		source, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		edited[name] = &fstest.MapFile{Data: source}
	}
	if edited[changed] == nil && !strings.HasPrefix(m.File, "part_") {
		return nil, fmt.Errorf("there is no %s", changed)
	}
	edited[changed] = &fstest.MapFile{Data: []byte(m.Text)}
	return edited, nil
}

// Names returns the scripts there are, without parts.
func Names(files fs.FS) ([]string, error) {
	paths, err := fs.Glob(files, "lua/*.lua")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "lua/"), ".lua")
		if !strings.HasPrefix(name, "part_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
