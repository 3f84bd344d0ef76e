package cas

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// ownScript is loaded once, for all Clients.
var ownScript = sync.OnceValues(func() (*wire.Script, error) { return load(luaFiles) })

func load(files fs.FS) (*wire.Script, error) {
	l := wire.NewLoader(files)
	put := l.Script("record_put")
	return put, l.Err()
}
