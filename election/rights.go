package election

import (
	"errors"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

type needs = lock.Declared[rights]

type rights struct{}

// Needs returns the keys, channels and scripts of elections.
func (rights) Needs() lock.Needs {
	return lock.Needs{
		Names:    lock.ElectionNames,
		Parts:    map[string]lock.Part{"leader": {Types: []string{"hash"}, Schema: "1"}, "terms": {Types: []string{"list"}}},
		Channels: []string{"leader"},
		Scripts: func(quorum bool) ([]*wire.Script, error) {
			all, err := lock.MutexScripts(quorum)
			s, failed := ownScripts()
			switch err = errors.Join(err, failed); {
			case err != nil:
				return nil, err
			case quorum:
				return append(all, s.keep, s.view), nil
			}
			return append(all, s.renew, s.look), nil
		},
	}
}
