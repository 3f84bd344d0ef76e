package ledger

import (
	"io/fs"
	"sync"
)

// ScriptFiles are the scripts in these tests.
var ScriptFiles fs.FS = luaFiles

// WatchBegins calls nudge when an attempt may have begun.
func (l *Ledger) WatchBegins(nudge func()) (stop func()) {
	return l.lock.Watch(l.keys.begins, func(string) { nudge() })
}

// UseScripts replaces the scripts of all Clients that are created later.
func UseScripts(files fs.FS) {
	ScriptFiles = files
	ownScripts = sync.OnceValues(func() (*scripts, error) { return load(files) })
}
