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

// Identity returns the name of the replica.
func (le *LeaderElector) Identity() string { return le.election.lock.Client().Identity() }

// Election returns the election of the elector.
func (le *LeaderElector) Election() *Election { return le.election }
