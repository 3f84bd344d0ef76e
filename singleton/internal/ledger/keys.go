package ledger

import "github.com/noonlock/noonlock/internal/engine"

// keys are the keys and channels of a job. All keys belong to one name, job/<job>:
//
//	job        hash    the state of the job, see part_job.lua
//	open       hash    tick or trigger (ms) -> JSON of the run that has not ended
//	runs       list    JSON of ended runs, newest first
//	acts       list    JSON of what operators have done, newest first
//	defs       list    JSON of the schedules and since when each was in use, newest first
//	fence      string  counter of fencing tokens
//	tomb:<id>  string  marks a run, start or trigger that was processed, for minutes
//
// The channels are <prefix>:job:<job>, <prefix>:job:<job>{begins} for the beginnings of
// attempts, and <prefix>:job:<job>{cancels}. Names have no braces, so no channel is that of another job.
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
