package election

import (
	"io/fs"
	"sync"
)

// ScriptFiles are the scripts in these tests.
var ScriptFiles fs.FS = luaFiles

// UseScripts replaces the scripts of all Clients that are created later.
func UseScripts(files fs.FS) {
	ScriptFiles = files
	ownScripts = sync.OnceValues(func() (*scripts, error) { return load(files) })
}

// A Term is a term of a leader.
type Term = term

// Term returns the present term; ok is false if this replica does not lead.
func (le *LeaderElector) Term() (now Term, ok bool) {
	if l := le.current(); l != nil {
		return l.led.Load().term, true
	}
	return now, false
}

// Identity returns the name of the replica.
func (le *LeaderElector) Identity() string { return le.election.lock.Client().Identity() }

// Election returns the election of the elector.
func (le *LeaderElector) Election() *Election { return le.election }
