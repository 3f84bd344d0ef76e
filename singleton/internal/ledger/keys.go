package ledger

import (
	"embed"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// keys are the keys and channels of a job. All keys belong to one name, job/<job>.
// docs/ARCHITECTURE.md, "Keys", describes them. Names have no braces, so each channel belongs to one job.
type keys struct {
	job, runs, acts, fence, payloads string
	channel, begins                  string                   // job_claim.lua derives begins from channel, too
	key                              func(part string) string // spells any key of the job
}

func keysOf(n *lock.Name, job string) keys {
	channel := n.Channel("job", job)
	return keys{
		job: n.Key("job"), runs: n.Key("runs"), acts: n.Key("acts"), fence: n.Key("fence"),
		payloads: n.Key("payloads"),
		channel:  channel, begins: channel + "{begins}", key: n.Key,
	}
}

func (k keys) tomb(id string) string { return k.key("tomb:" + id) }

// Rights declare the keys, channels and scripts of jobs, for the check of the user's rights (ACL).
type Rights struct{}

// Needs returns the keys, channels and scripts of jobs.
func (Rights) Needs() lock.Needs {
	return lock.Needs{
		Prefix: lock.JobNames,
		Parts: map[string]lock.KeyPart{
			"job":      {Types: []string{"hash"}, Endless: true, Schema: "1"}, // endless while paused
			"runs":     {Types: []string{"list"}, Endless: true},
			"acts":     {Types: []string{"list"}, Endless: true},
			"payloads": {Types: []string{"hash"}, Endless: true},
		},
		Channels: []string{"job"},
		Scripts: func(quorum bool) ([]*wire.Script, error) {
			s, err := ownScripts()
			switch {
			case err != nil:
				return nil, err
			case quorum:
				return nil, errQuorum
			}
			return []*wire.Script{s.open, s.leave, s.claim, s.renew, s.complete, s.abandon, s.skip, s.trigger}, nil
		},
	}
}

//go:embed lua/*.lua
var luaFiles embed.FS

type scripts struct {
	open, refresh, leave, status          *wire.Script
	pause, trigger, rerun, cancel, forget *wire.Script
	claim, renew, complete, abandon, skip *wire.Script
}

// ownScripts loads the scripts once for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return load(luaFiles) })

func load(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		open: l.Script("job_open"), refresh: l.Script("job_refresh"), leave: l.Script("job_leave"), status: l.Script("job_status"),
		pause: l.Script("job_pause"), trigger: l.Script("job_trigger"), rerun: l.Script("job_rerun"), cancel: l.Script("job_cancel"),
		forget: l.Script("job_forget"),
		claim:  l.Script("job_claim"), renew: l.Script("job_renew"), complete: l.Script("job_complete"),
		abandon: l.Script("job_abandon"), skip: l.Script("job_skip"),
	}
	return s, l.Err()
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// millis returns a time as the scripts expect it: in ms, or empty for the zero time.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return decimal(t.UnixMilli())
}

func flag(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}
