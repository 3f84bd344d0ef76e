package ledger

import (
	"embed"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the scripts of a ledger.
type scripts struct {
	open, look, leave, status             *wire.Script
	pause, trigger, rerun, cancel, forget *wire.Script
	claim, renew, complete, abandon, skip *wire.Script
}

// ownScripts loads the scripts once for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return load(luaFiles) })

func load(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		open: l.Script("job_open"), look: l.Script("job_look"), leave: l.Script("job_leave"), status: l.Script("job_status"),
		pause: l.Script("job_pause"), trigger: l.Script("job_trigger"), rerun: l.Script("job_rerun"), cancel: l.Script("job_cancel"),
		forget: l.Script("job_forget"),
		claim:  l.Script("job_claim"), renew: l.Script("job_renew"), complete: l.Script("job_complete"),
		abandon: l.Script("job_abandon"), skip: l.Script("job_skip"),
	}
	return s, l.Err()
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// millis returns a time as the scripts expect it, or nothing for the zero time.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return decimal(t.UnixMilli())
}

// flag returns a condition as the scripts expect it.
func flag(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}
