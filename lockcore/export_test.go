package lockcore

import (
	"context"
	"io/fs"
	"strings"
	"sync"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// scriptFiles are the files of the scripts in these tests.
var scriptFiles fs.FS = lock.LuaFiles

// ScriptFiles returns the files of the scripts in these tests.
func ScriptFiles() fs.FS { return scriptFiles }

// UseScripts replaces the scripts, for all Clients to come.
func UseScripts(files fs.FS) {
	scriptFiles = files
	lock.OwnScripts = sync.OnceValues(func() (*lock.Scripts, error) { return lock.LoadScripts(files) })
}

// ScriptSource returns the text of a script.
func ScriptSource(name string) (string, error) {
	l := wire.NewLoader(scriptFiles)
	s := l.Script(name)
	if err := l.Err(); err != nil {
		return "", err
	}
	return s.Source(), nil
}

// Downgrade is RWMutex.Downgrade of the lock of a lease.
func Downgrade(ctx context.Context, l *Lease) error { return l.held.Downgrade(ctx) }

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.name.Name() }

// Name returns the name of the lock.
func (m *ReentrantMutex) Name() string { return m.mutex.Name() }

// Name returns the name of the lock.
func (rw *RWMutex) Name() string { return rw.read.Name() }

// Process returns the secret part of a Client's values.
func (c *Client) Process() string {
	process, _, _ := strings.Cut(c.room().NewID(), ".")
	return process
}
