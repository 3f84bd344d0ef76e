package lockcore

import (
	"crypto/sha1" //nolint:gosec // what EVALSHA names scripts by
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// ownScripts are loaded once, for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return loadScripts(luaFiles) })

// script is one file of lua/ with its parts included.
type script struct {
	name, source, sha string
}

// scripts are all that change shared state.
type scripts struct {
	mutexAcquire, mutexRenew, mutexLeave                                    *script
	ownedAcquire, ownedRenew, ownedLeave, ownedDowngrade                    *script
	jobOpen, jobClaim, jobRenew, jobComplete, jobAbandon, jobSkip, jobRetry *script
	jobRaise, jobLeave, jobStatus, jobPause, jobTrigger                     *script
	leaderClaim, leaderRenew, leaderVacate                                  *script
	leaderLook, leaderLine, leaderTransfer                                  *script
	lockInspect, lockForce                                                  *script
	recordPut                                                               *script
}

func loadScripts(files fs.FS) (*scripts, error) {
	s := &scripts{}
	for name, at := range map[string]**script{
		"mutex_acquire": &s.mutexAcquire,
		"mutex_renew":   &s.mutexRenew,
		"mutex_leave":   &s.mutexLeave,

		"owned_acquire":   &s.ownedAcquire,
		"owned_renew":     &s.ownedRenew,
		"owned_leave":     &s.ownedLeave,
		"owned_downgrade": &s.ownedDowngrade,

		"job_open":     &s.jobOpen,
		"job_claim":    &s.jobClaim,
		"job_renew":    &s.jobRenew,
		"job_complete": &s.jobComplete,
		"job_abandon":  &s.jobAbandon,
		"job_skip":     &s.jobSkip,
		"job_retry":    &s.jobRetry,
		"job_raise":    &s.jobRaise,
		"job_leave":    &s.jobLeave,
		"job_status":   &s.jobStatus,
		"job_pause":    &s.jobPause,
		"job_trigger":  &s.jobTrigger,

		"leader_claim":    &s.leaderClaim,
		"leader_renew":    &s.leaderRenew,
		"leader_vacate":   &s.leaderVacate,
		"leader_look":     &s.leaderLook,
		"leader_line":     &s.leaderLine,
		"leader_transfer": &s.leaderTransfer,

		"record_put": &s.recordPut,

		"lock_inspect": &s.lockInspect,
		"lock_force":   &s.lockForce,
	} {
		loaded, err := loadScript(files, name)
		if err != nil {
			return nil, err
		}
		*at = loaded
	}
	return s, nil
}

var includeLine = regexp.MustCompile(`(?m)^--@include (\w+)$`)

func loadScript(files fs.FS, name string) (*script, error) {
	source, err := fs.ReadFile(files, "lua/"+name+".lua")
	if err != nil {
		return nil, fmt.Errorf("lockcore: script %s: %w", name, err)
	}
	var missing error
	text := includeLine.ReplaceAllStringFunc(string(source), func(line string) string {
		part, err := fs.ReadFile(files, "lua/part_"+strings.TrimPrefix(line, "--@include ")+".lua")
		missing = errors.Join(missing, err)
		return string(part)
	})
	if missing != nil {
		return nil, fmt.Errorf("lockcore: script %s: %w", name, missing)
	}
	text = stripComments(text)
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return &script{name: name, source: text, sha: hex.EncodeToString(sum[:])}, nil
}

// stripComments drops whole-line comments, which an EVAL would send each time.
func stripComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// args is the EVALSHA for a script.
func (s *script) args(keys []string, argv ...any) []any {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", s.sha, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	return append(args, argv...)
}

// whole turns the EVALSHA of a script into an EVAL, for a server that does not
// know it. The arguments are shared, not changed.
func (s *script) whole(args []any) []any {
	whole := append([]any(nil), args...)
	whole[0], whole[1] = "eval", s.source
	return whole
}

// ReplyError says that a script answered something it never answers: the key
// or the server is not what it seems.
type ReplyError struct {
	Script string
	Reply  string
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("lockcore: script %s answered %s, which it never does", e.Script, e.Reply)
}

func (s *script) oddReply(reply any) error {
	return &ReplyError{Script: s.name, Reply: shape(reply)}
}

// shape tells what a reply is like without its text, which may hold a secret.
func shape(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nothing"
	case int64:
		return decimal(r)
	case string:
		return fmt.Sprintf("a string of %d bytes", len(r))
	case []any:
		return fmt.Sprintf("a list of %d", len(r))
	default:
		return fmt.Sprintf("a %T", reply)
	}
}
