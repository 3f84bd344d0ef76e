package ledger

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/noonlock/noonlock/internal/wire"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are all scripts that change a ledger.
type scripts struct {
	open, look, leave, status, pause, trigger, rerun, cancel *wire.Script
	forget                                                   *wire.Script
	claim, renew, complete, abandon, skipped                 *wire.Script
}

// ownScripts are loaded once, for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return load(luaFiles) })

func load(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		open: l.Script("job_open"), look: l.Script("job_look"), leave: l.Script("job_leave"), status: l.Script("job_status"),
		pause: l.Script("job_pause"), trigger: l.Script("job_trigger"), rerun: l.Script("job_rerun"), cancel: l.Script("job_cancel"),
		forget: l.Script("job_forget"),
		claim:  l.Script("job_claim"), renew: l.Script("job_renew"), complete: l.Script("job_complete"),
		abandon: l.Script("job_abandon"), skipped: l.Script("job_skip"),
	}
	return s, l.Err()
}
