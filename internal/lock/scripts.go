package lock

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lua"
)

// Scripts are the scripts of lockcore. They make all changes on the server. Only forced releases
// are read with plain commands.
type Scripts struct {
	mutexAcquire, mutexRenew, mutexLeave                 *wire.Script
	ownedAcquire, ownedRenew, ownedLeave, ownedDowngrade *wire.Script
	ownedResize                                          *wire.Script
	inspect, force, promote                              *wire.Script
	rights, history                                      *wire.Script

	quorumAcquire, quorumRenew, quorumLeave, quorumState, quorumJoin *wire.Script
}

//go:embed lua/*.lua
var ownFiles embed.FS

// LuaFiles has one folder, lua, with the files of lockcore/lua and of the folder lua of this package.
var LuaFiles fs.FS = allFiles{}

type allFiles struct{}

// Open opens a file of either package.
func (allFiles) Open(name string) (fs.File, error) {
	if f, err := ownFiles.Open(name); err == nil {
		return f, nil
	}
	return lua.Files.Open(strings.TrimPrefix(name, "lua/"))
}

// ReadDir lists the files of both packages.
func (allFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	own, err := ownFiles.ReadDir(name)
	if err != nil {
		return nil, err
	}
	entries, err := lua.Files.ReadDir(".")
	return append(own, entries...), err
}

// OwnScripts returns the scripts of LuaFiles, which are loaded once for all Clients. Tests of the scripts replace it.
var OwnScripts = sync.OnceValues(func() (*Scripts, error) { return LoadScripts(LuaFiles) })

// LoadScripts reads the scripts from files like LuaFiles.
func LoadScripts(files fs.FS) (*Scripts, error) {
	l := wire.NewLoader(files)
	s := &Scripts{
		mutexAcquire: l.Script("mutex_acquire"),
		mutexRenew:   l.Script("mutex_renew"),
		mutexLeave:   l.Script("mutex_leave"),

		ownedAcquire:   l.Script("owned_acquire"),
		ownedRenew:     l.Script("owned_renew"),
		ownedLeave:     l.Script("owned_leave"),
		ownedDowngrade: l.Script("owned_downgrade"),
		ownedResize:    l.Script("owned_resize"),

		inspect: l.Script("lock_inspect"),
		force:   l.Script("lock_force"),
		promote: l.Script("lock_promote"),
		rights:  l.Script("lock_rights"),
		history: l.Script("lock_history"),

		quorumAcquire: l.Script("quorum_acquire"),
		quorumRenew:   l.Script("quorum_renew"),
		quorumLeave:   l.Script("quorum_leave"),
		quorumState:   l.Script("quorum_state"),
		quorumJoin:    l.Script("quorum_join"),
	}
	if err := l.Err(); err != nil {
		return nil, fmt.Errorf("lockcore: %w", err)
	}
	return s, nil
}
