package partition

import (
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
)

// ScriptFiles are the scripts in these tests.
var ScriptFiles fs.FS = luaFiles

// UseScripts replaces the scripts of all Clients that are created later.
func UseScripts(files fs.FS) {
	ScriptFiles = files
	ownScript = sync.OnceValues(func() (*wire.Script, error) { return load(files) })
}
