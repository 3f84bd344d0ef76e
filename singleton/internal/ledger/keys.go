package ledger

import "github.com/noonlock/noonlock/internal/engine"

// keys are the keys and channels of a job. All keys belong to one name, job/<job>.
// docs/ARCHITECTURE.md, "Keys", describes them. Names have no braces, so no channel is that of another job.
type keys struct {
	job, open, runs, acts, defs, fence string
	channel, begins, cancels           string
	key                                func(part string) string
}

func keysOf(e engine.Engine, job string) keys {
	channel := e.Channel("job:" + job)
	return keys{
		job: e.Key("job"), open: e.Key("open"), runs: e.Key("runs"), acts: e.Key("acts"), defs: e.Key("defs"), fence: e.Key("fence"),
		channel: channel, begins: channel + "{begins}", cancels: channel + "{cancels}", key: e.Key,
	}
}

func (k keys) tomb(id string) string { return k.key("tomb:" + id) }

// Parts returns the parts of the keys by which a job is found.
func Parts() []string { return []string{"job"} }
