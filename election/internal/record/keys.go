package record

import "github.com/noonlock/noonlock/internal/lock"

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
