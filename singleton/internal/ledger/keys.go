package ledger

import "github.com/noonlock/noonlock/internal/lock"

// keys are the keys and channels of a job. All keys belong to one name, job/<job>.
// docs/ARCHITECTURE.md, "Keys", describes them. Names have no braces, so no channel is that of another job.
type keys struct {
	job, open, runs, acts, defs, fence string
	channel, begins, cancels           string
	key                                func(part string) string
}

func keysOf(n *lock.Name, job string) keys {
	channel := n.Channel("job", job)
	return keys{
		job: n.Key("job"), open: n.Key("open"), runs: n.Key("runs"), acts: n.Key("acts"), defs: n.Key("defs"), fence: n.Key("fence"),
		channel: channel, begins: channel + "{begins}", cancels: channel + "{cancels}", key: n.Key,
	}
}

func (k keys) tomb(id string) string { return k.key("tomb:" + id) }

// Parts returns the parts of the keys by which a job is found.
func Parts() []string { return []string{"job"} }
