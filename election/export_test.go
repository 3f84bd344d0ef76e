package election

import (
	"io/fs"
	"sync"
)

// ScriptFiles are the scripts in these tests.
var ScriptFiles fs.FS = luaFiles

// UseScripts replaces the scripts of all Clients that are created later.
func UseScripts(files fs.FS) {
	ScriptFiles = files
	ownScripts = sync.OnceValues(func() (*scripts, error) { return load(files) })
}
