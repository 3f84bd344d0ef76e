package lockcore

import (
	"embed"
	"sync"

	"github.com/noonlock/noonlock/internal/lock"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// ownScripts are loaded once, for all Clients.
var ownScripts = sync.OnceValues(func() (*lock.Scripts, error) { return lock.LoadScripts(luaFiles) })
