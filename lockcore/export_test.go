package lockcore

import (
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/wiretest"
)

// scriptFiles are the files of the scripts in these tests.
var scriptFiles fs.FS = luaFiles

// UseMutant changes a file of the scripts in these tests, for all Clients to come, see
// wiretest.Edit.
func UseMutant(text string) error {
	files, err := wiretest.Edit(luaFiles, text)
	if err != nil {
		return err
	}
	scriptFiles = files
	ownScripts = sync.OnceValues(func() (*scripts, error) { return loadScripts(files) })
	return nil
}

// ScriptSource is the text of a script as it is sent, for faults that match it.
func ScriptSource(name string) (string, error) {
	l := wire.NewLoader(scriptFiles)
	s := l.Script(name)
	if err := l.Err(); err != nil {
		return "", err
	}
	return s.Source(), nil
}

// ScriptFile is the file of a script as it was written, comments and all.
func ScriptFile(name string) (string, error) {
	text, err := fs.ReadFile(scriptFiles, "lua/"+name+".lua")
	return string(text), err
}

// ScriptNames are the scripts there are, parts left out.
func ScriptNames() ([]string, error) { return wiretest.Names(scriptFiles) }

// Process is the secret part of a Client's values.
func (c *Client) Process() string { return c.process }
