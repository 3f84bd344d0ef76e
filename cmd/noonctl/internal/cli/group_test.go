//go:build unix

package cli_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
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

// left returns the processes that have left the groups of the commands.
func (s *site) left() (pids []int) {
	text, _ := os.ReadFile(s.file + "-left") // there may be none
	for line := range strings.FieldsSeq(string(text)) {
		pids = append(pids, testenv.Call(strconv.Atoi(line)).Must(s))
	}
	return pids
}

// FAULTS 108 to 111. What a command has started works on after it, or ignores SIGTERM. Its lease is held
// until all of the group has ended, and all has ended before another command begins, whatever
// noonctl was asked for before, and even if noonctl is killed or frozen. A process that has left the
// group changes nothing of this, and is not ended. If noonctl ends after the lease of its command was
// lost, its exit code is 76.
//
// Caught mutants: the group is not awaited; the lease is not watched after SIGTERM, a resignation, a
// timeout or a cancel; no guard; a guard that does not notice the end of noonctl; a noonctl that was
// frozen does not notice that the lease was lost.
func TestFault108_109_110_111_TwoCommandsAtWork(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const soon = 150 * time.Millisecond
	then := func(steps ...func(s *site)) func(s *site) {
		return func(s *site) {
			for i, step := range steps {
				if i > 0 {
					time.Sleep(soon)
				}
				step(s)
			}
		}
	}
	sends := func(sig syscall.Signal) func(s *site) { return func(s *site) { s.signal(sig) } }
	asks := func(what string) func(s *site) { return func(s *site) { s.act(what) } }
	term, freeze, cut := sends(syscall.SIGTERM), sends(syscall.SIGSTOP), (*site).cut
	timeout := func(*site) { time.Sleep(2 * time.Second) }
	states := map[string]struct {
		verbs string
		do    func(s *site)
		code  map[string]int // of the first noonctl, by verb; absent: it may go on
	}{
		"nothing":                    {"run elect", func(*site) {}, map[string]int{"run": 0, "elect": 0}},
		"SIGTERM":                    {"run read write elect cron", term, nil},
		"lost":                       {"run read write elect cron", cut, map[string]int{"run": 76}},
		"killed":                     {"run read write elect cron", sends(syscall.SIGKILL), nil},
		"frozen":                     {"run read write elect cron", freeze, map[string]int{"run": 76}},
		"SIGTERM, frozen":            {"run elect cron", then(term, freeze), map[string]int{"run": 76, "elect": 76, "cron": 76}},
		"resignation":                {"elect", asks("resign"), nil},
		"cancel":                     {"cron", asks("cancel"), nil},
		"timeout":                    {"cron: --run-timeout 2s --kill-after 1h", timeout, nil},
		"SIGTERM, lost":              {"run elect cron", then(term, cut), map[string]int{"run": 76, "elect": 76, "cron": 76}},
		"resignation, lost":          {"elect", then(asks("resign"), cut), nil},
		"resignation, lost, SIGTERM": {"elect", then(asks("resign"), cut, term), map[string]int{"elect": 76}},
		"cancel, lost":               {"cron", then(asks("cancel"), cut), nil},
		"cancel, lost, SIGTERM":      {"cron", then(asks("cancel"), cut, term), map[string]int{"cron": 76}},
		"timeout, lost":              {"cron: --run-timeout 2s --kill-after 1h", then(timeout, cut), nil},
		"timeout, lost, SIGTERM":     {"cron: --run-timeout 2s --kill-after 1h", then(timeout, cut, term), map[string]int{"cron": 76}},
	}
	// Each works for three seconds, and for five if there is a timeout.
	const work = `i=0; while [ $i -lt TIMES ]; do echo "$NOONLOCK_TOKEN $NOONLOCK_ATTEMPT" >>FILE; sleep 0.05; i=$((i+1)); done`
	commands := map[string]string{
		"ignores SIGTERM": `trap '' TERM; ` + work,
		"has a step":      `sh -c 'trap "" TERM; ` + work + `'; exit 0`,
		"leaves a job":    `(trap '' TERM; ` + work + `) & exit 0`,
		"setsid":          `setsid sh -c 'echo $$ >>FILE-left; exec sleep 60' & trap '' TERM; ` + work,
	}
	number := 0
	for state, doing := range states {
		verbs, flags, _ := strings.Cut(doing.verbs, ": ")
		for verb := range strings.FieldsSeq(verbs) {
			for what, script := range commands {
				if (verb == "read" || verb == "write") && what != "ignores SIGTERM" {
					continue // they are sides of run
				}
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
					log := testenv.Call(os.Create(s.file + "-log")).Must(t)
					t.Cleanup(func() {
						if t.Failed() {
							t.Log(read(t, log.Name()))
						}
						_ = log.Close()
					})
					t.Cleanup(func() {
						for _, pid := range s.left() {
							_ = syscall.Kill(pid, syscall.SIGKILL)
						}
					})
					times := "60"
					if flags != "" {
						times = "100"
					}
					// A lease that must end soon is short. The others outlive a pause of a busy machine.
					ttl := "4s"
					if strings.Contains(state, "lost") || strings.Contains(state, "frozen") {
						ttl = "2s"
					}
					side := func(verb, ttl string) *exec.Cmd {
						args := map[string]string{
							"run": "run --lock NAME --ttl TTL", "read": "run --lock NAME --ttl TTL --mode read", "write": "run --lock NAME --ttl TTL --mode write",
							"elect": "elect NAME --lease TTL", "cron": "cron NAME @yearly --ttl TTL --drain 100ms --max-attempts 2 " + flags,
						}[verb]
						cmd := e.program(append(strings.Fields(strings.NewReplacer("NAME", name, "TTL", ttl).Replace(args)), "--", "sh", "-c", strings.NewReplacer("FILE", s.file, "TIMES", times).Replace(script))...)
						cmd.Stderr = log
						return cmd
					}
					testenv.Must(t, e.Raw.Do(t.Context(), "ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all").Err())
					s.a = side(verb, ttl)
					s.a.Env = append(s.a.Env, "NOONLOCK_REDIS="+strings.Replace(e.url, "//", "//"+name+":secret@", 1))
					follow(t, s.a)
					if verb == "cron" {
						e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/" + name + "}:job") })
						s.act("trigger")
					}
					e.Until("the command works", func() bool {
						return len(s.writers()) > 0 && (what != "setsid" || len(s.left()) > 0)
					})
					follow(t, side(cmp.Or(map[string]string{"read": "write", "write": "read"}[verb], verb), "4s"))
					doing.do(s)
					frozen, kind := strings.Contains(state, "frozen"), strings.NewReplacer("read", "run", "write", "run").Replace(verb)
					code, ok := doing.code[kind]
					ends := func(now bool) {
						t.Helper()
						if ok && now {
							testenv.Equal(t, "the exit code", exitOf(t, s.a), code)
						}
					}
					ends(!frozen)
					e.Until("another command works, or the run has ended", func() bool {
						return len(s.writers()) > 1 || e.Raw.LLen(t.Context(), "noonlock:{job/"+name+"}:runs").Val() > 0
					})
					if frozen {
						s.signal(syscall.SIGCONT)
						ends(true)
					}
					time.Sleep(soon)
					if pids := s.left(); len(pids) > 0 && syscall.Kill(pids[0], 0) != nil {
						t.Error("a process that has left the group was ended")
					}
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
