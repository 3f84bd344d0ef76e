package record

import (
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// keys are the keys and the channel of an election's record. All keys belong to one name,
// election/<name>. docs/ARCHITECTURE.md, "Keys", describes them. lock and fence are lockcore's.
type keys struct{ lock, fence, leader, waiting, channel string }

func keysOf(n *lock.Name, name string) keys {
	return keys{
		lock: n.Key("lock"), fence: n.Key("fence"), leader: n.Key("leader"), waiting: n.Key("waiting"),
		channel: n.Channel("leader", name),
	}
}

// Parts returns the parts of the keys by which an election is found.
func Parts() []string { return []string{"lock", "leader"} }

// Needs declares the keys and the scripts of elections.
func Needs() lock.Needs {
	return lock.Needs{
		Names: lock.ElectionNames,
		Parts: map[string]lock.Part{
			"leader":  {Types: []string{"hash"}, Schema: "1"},
			"waiting": {Types: []string{"hash"}},
		},
		Scripts: func(c *lock.Client) ([]*wire.Script, error) {
			s, err := ownScripts()
			if err != nil {
				return nil, err
			}
			if c.Quorum() != nil {
				return s.onQuorum(c), nil
			}
			return s.onServer(c), nil
		},
	}
}
