package election

import (
	"embed"
	"errors"
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// keys are the keys and the channel of an election, see docs/ARCHITECTURE.md, "Keys". The key lock belongs to lockcore.
type keys struct{ lock, leader, terms, channel string }

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the only requests that change the record, apart from the releases of the lock.
type scripts struct {
	renew, read, resign     *wire.Script
	renewMember, readMember *wire.Script // at one server of a quorum
}

// ownScripts loads the scripts once, for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return load(luaFiles) })

func load(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		renew: l.Script("leader_renew"), read: l.Script("leader_read"), resign: l.Script("leader_resign"),
		renewMember: l.Script("leader_renew_member"), readMember: l.Script("leader_read_member"),
	}
	return s, l.Err()
}

type needs = lock.Declared[rights]

type rights struct{} // declares what elections need on a server

func (rights) Needs() lock.Needs {
	return lock.Needs{
		Prefix:   lock.ElectionNames,
		Parts:    map[string]lock.KeyPart{"leader": {Types: []string{"hash"}, Schema: "1"}, "terms": {Types: []string{"list"}}},
		Channels: []string{"leader"},
		Scripts: func(quorum bool) ([]*wire.Script, error) {
			all, err := lock.MutexScripts(quorum)
			s, ownErr := ownScripts()
			switch err = errors.Join(err, ownErr); {
			case err != nil:
				return nil, err
			case quorum:
				return append(all, s.renewMember, s.readMember), nil
			}
			return append(all, s.renew, s.read), nil
		},
	}
}
