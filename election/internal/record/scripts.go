package record

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the only requests that change the record.
type scripts struct {
	claim, renew, vacate, look, resign *wire.Script
	keep, view, waiting                *wire.Script // on a quorum, with vacate
}

// ownScripts loads the scripts once, for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return load(luaFiles) })

func load(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		claim: l.Script("leader_claim"), renew: l.Script("leader_renew"),
		vacate: l.Script("leader_vacate"), look: l.Script("leader_look"), resign: l.Script("leader_resign"),
		keep: l.Script("leader_keep"), view: l.Script("leader_view"), waiting: l.Script("leader_waiting"),
	}
	return s, l.Err()
}

// onServer returns the scripts that a candidate or leader needs on one server.
func (s *scripts) onServer(c *lock.Client) []*wire.Script {
	return append(c.MutexScripts(), s.claim, s.renew, s.vacate, s.look)
}

// onQuorum returns those on several servers.
func (s *scripts) onQuorum(c *lock.Client) []*wire.Script {
	return append(c.MutexScripts(), s.keep, s.view, s.waiting, s.vacate)
}
