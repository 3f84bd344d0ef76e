package lockcore

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// ownScripts are loaded once, for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return loadScripts(luaFiles) })

// scripts are the scripts of this package. They make all changes on the server. ForcedReleases and
// the cause of a forced release are read with plain commands.
type scripts struct {
	mutexAcquire, mutexRenew, mutexLeave                 *wire.Script
	ownedAcquire, ownedRenew, ownedLeave, ownedDowngrade *wire.Script
	lockInspect, lockForce, lockQueue, lockPromote       *wire.Script
	lockRights, lockHistory                              *wire.Script

	quorumAcquire, quorumRenew, quorumLeave, quorumState, quorumJoin *wire.Script
}

func loadScripts(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		mutexAcquire: l.Script("mutex_acquire"),
		mutexRenew:   l.Script("mutex_renew"),
		mutexLeave:   l.Script("mutex_leave"),

		ownedAcquire:   l.Script("owned_acquire"),
		ownedRenew:     l.Script("owned_renew"),
		ownedLeave:     l.Script("owned_leave"),
		ownedDowngrade: l.Script("owned_downgrade"),

		lockInspect: l.Script("lock_inspect"),
		lockForce:   l.Script("lock_force"),
		lockQueue:   l.Script("lock_queue"),
		lockPromote: l.Script("lock_promote"),
		lockRights:  l.Script("lock_rights"),
		lockHistory: l.Script("lock_history"),

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
