package ledger

import "github.com/noonlock/noonlock/internal/engine"

// names is what the keys of a job are named by, before the job's name. Users' locks may
// not begin with it.
const names = "job/"

// keys are the keys and channels of a job. All keys are of one name, job/<job>:
//
//	job        hash    how it stands, see part_job.lua
//	open       hash    tick (ms) -> JSON of the run that has not ended
//	runs       list    JSON of ended runs, newest first
//	live       hash    replica -> order of its definition, alive until (server ms), …
//	defs       list    JSON of what named the ticks since when, newest first
//	fence      string  counter of fencing tokens
//	tomb:<id>  string  this run, start or trigger is known already, minutes
//
// and the channels are <prefix>:job:<job>, and with {begins} behind it one for the
// beginnings of runs. No name has braces, so that is no other job's.
type keys struct {
	job, open, runs, live, defs, fence string
	channel, begins                    string
	key                                func(part string) string
}

func keysOf(e engine.Engine, job string) keys {
	channel := e.Channel("job:" + job)
	return keys{
		job: e.Key("job"), open: e.Key("open"), runs: e.Key("runs"), live: e.Key("live"), defs: e.Key("defs"), fence: e.Key("fence"),
		channel: channel, begins: channel + "{begins}", key: e.Key,
	}
}

func (k keys) tomb(id string) string { return k.key("tomb:" + id) }
