//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

// A site is a noonctl whose command writes lines to a file: the token and attempt that it has.
type site struct {
	*env
	name string // of the lock, election or job, and of the Redis user
	a    *exec.Cmd
	file string
}

// writers returns who has written lines, each as often as it began: one after the other if no two
// worked at the same time.
func (s *site) writers() (all []string) {
	for line := range strings.Lines(read(s.T, s.file)) {
		if len(all) == 0 || all[len(all)-1] != line {
			all = append(all, line)
		}
	}
	return all
}

func (s *site) signal(sig syscall.Signal) { testenv.Must(s, s.a.Process.Signal(sig)) }

// cut takes the connection of the first noonctl away, and its right to connect again.
func (s *site) cut() { testenv.Must(s, s.Raw.Do(s.Context(), "ACL", "DELUSER", s.name).Err()) }

func (s *site) act(args ...string) { s.must(append(args, s.name)...) }

// FAULTS 108 to 111. What a command has started works on after it, or ignores SIGTERM. Its lease is held
// until all of the group has ended, and all has ended before another command begins, whatever
// noonctl was asked for before, and even if noonctl is killed or frozen.
//
// Caught mutants: the group is not awaited; the lease is not watched after SIGTERM, a resignation, a
// timeout or a cancel; no guard; a guard that does not notice the end of noonctl.
func TestFault108_109_110_111_TwoCommandsAtWork(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const soon = 150 * time.Millisecond
	states := map[string]struct {
		verbs string
		do    func(s *site)
		code  map[string]int // of the first noonctl, by verb
	}{
		"nothing":     {"run elect", func(*site) {}, nil},
		"SIGTERM":     {"run elect cron", func(s *site) { s.signal(syscall.SIGTERM) }, nil},
		"lost":        {"run elect cron", func(s *site) { s.cut() }, map[string]int{"run": 76}},
		"killed":      {"run elect cron", func(s *site) { s.signal(syscall.SIGKILL) }, nil},
		"frozen":      {"run elect cron", func(s *site) { s.signal(syscall.SIGSTOP) }, nil},
		"resignation": {"elect", func(s *site) { s.act("resign") }, nil},
		"cancel":      {"cron", func(s *site) { s.act("cancel") }, nil},
		"timeout":     {"cron --run-timeout 500ms --kill-after 1h", func(*site) {}, nil},
		"SIGTERM, lost": {"run elect cron", func(s *site) {
			s.signal(syscall.SIGTERM)
			time.Sleep(soon)
			s.cut()
		}, map[string]int{"run": 76, "elect": 76, "cron": 76}},
		"resignation, lost": {"elect", func(s *site) {
			s.act("resign")
			time.Sleep(soon)
			s.cut()
		}, nil},
		"cancel, lost": {"cron", func(s *site) {
			s.act("cancel")
			time.Sleep(soon)
			s.cut()
		}, nil},
		"timeout, lost": {"cron --run-timeout 500ms --kill-after 1h", func(s *site) {
			time.Sleep(500*time.Millisecond + soon)
			s.cut()
		}, nil},
	}
	// Each works for four seconds.
	const work = `i=0; while [ $i -lt 80 ]; do echo "$NOONLOCK_TOKEN $NOONLOCK_ATTEMPT" >>FILE; sleep 0.05; i=$((i+1)); done`
	commands := map[string]string{
		"ignores SIGTERM": `trap '' TERM; ` + work,
		"has a step":      `sh -c 'trap "" TERM; ` + work + `'; exit 0`,
		"leaves a job":    `(trap '' TERM; ` + work + `) & exit 0`,
	}
	number := 0
	for state, doing := range states {
		verbs, flags, _ := strings.Cut(doing.verbs, " --")
		for verb := range strings.FieldsSeq(verbs) {
			for what, script := range commands {
				number++
				name := fmt.Sprintf("%s-%d", verb, number)
				t.Run(verb+"/"+state+"/"+what, func(t *testing.T) {
					t.Parallel()
					// Processes that are being killed may still write.
					dir, err := os.MkdirTemp("", "noonctl") //nolint:usetesting // the reason is above
					testenv.Must(t, err)
					t.Cleanup(func() { e.Until("the folder is removed", func() bool { return os.RemoveAll(dir) == nil }) })
					e := &env{Env: &testenv.Env{T: t, Real: e.Real, Raw: e.Raw}, url: e.url, client: e.client}
					s := &site{env: e, name: name, file: filepath.Join(dir, "lines")}
					testenv.Must(t, os.WriteFile(s.file, nil, 0o600))
					args := map[string][]string{
						"run":   {"run", "--lock", name, "--ttl", "2s"},
						"elect": {"elect", name, "--lease", "2s"},
						"cron":  {"cron", name, "@yearly", "--ttl", "2s", "--drain", "100ms", "--max-attempts", "2"},
					}[verb]
					if flags != "" {
						args = append(args, strings.Fields("--"+flags)...)
					}
					args = append(args, "--", "sh", "-c", strings.ReplaceAll(script, "FILE", s.file))
					start := func(cmd *exec.Cmd) *exec.Cmd {
						cmd.Stderr = nil
						follow(t, cmd)
						return cmd
					}
					testenv.Must(t, e.Raw.Do(t.Context(), "ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all").Err())
					s.a = e.program(args...)
					s.a.Env = append(s.a.Env, "NOONLOCK_REDIS="+strings.Replace(e.url, "//", "//"+name+":secret@", 1))
					start(s.a)
					if verb == "cron" {
						e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/" + name + "}:job") })
						s.act("trigger")
					}
					e.Until("the command works", func() bool { return len(s.writers()) > 0 })
					start(e.program(args...))
					doing.do(s)
					if code, ok := doing.code[verb]; ok {
						if got := exitOf(t, s.a); got != code {
							t.Errorf("exit code %d, want %d", got, code)
						}
					}
					e.Until("another command works, or the run has ended", func() bool {
						return len(s.writers()) > 1 || e.Raw.LLen(t.Context(), "noonlock:{job/"+name+"}:runs").Val() > 0
					})
					time.Sleep(soon)
					seen := map[string]bool{}
					for _, writer := range s.writers() {
						if seen[writer] {
							t.Errorf("two commands worked at the same time: %q", s.writers())
							break
						}
						seen[writer] = true
					}
				})
			}
		}
	}
}
