package record

import "github.com/noonlock/noonlock/internal/engine"

// keys are the keys and the channel of an election's record. All keys belong to one name,
// election/<name>. docs/ARCHITECTURE.md, "Keys", describes them. lock and fence are lockcore's.
type keys struct{ lock, fence, leader, waiting, channel string }

func keysOf(e engine.Engine, name string) keys {
	return keys{
		lock: e.Key("lock"), fence: e.Key("fence"), leader: e.Key("leader"), waiting: e.Key("waiting"),
		channel: e.Channel("leader:" + name),
	}
}

// Parts returns the parts of the keys by which an election is found.
func Parts() []string { return []string{"lock", "leader"} }
