package record

import "github.com/noonlock/noonlock/internal/engine"

// keys are the keys and the channel of an election's record. All keys belong to one name,
// election/<name>:
//
//	lock     string  the attempt of the leader; lockcore's
//	fence    string  counter of fencing tokens; lockcore's
//	leader   hash    the record, a week from its last renewal
//	waiting  hash    on a quorum, the candidates, see leader_waiting.lua
//
// and the channel is <prefix>:leader:<name>.
type keys struct{ lock, fence, leader, waiting, channel string }

func keysOf(e engine.Engine, name string) keys {
	return keys{
		lock: e.Key("lock"), fence: e.Key("fence"), leader: e.Key("leader"), waiting: e.Key("waiting"),
		channel: e.Channel("leader:" + name),
	}
}

// Parts returns the parts of the keys by which an election is found.
func Parts() []string { return []string{"lock", "leader"} }
