package explorer

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

// mutantsOf returns the mutants of each file.
func mutantsOf(t *testing.T, files map[string]string) map[string][]mutant {
	t.Helper()
	var keys []string
	for _, text := range files {
		keys = append(keys, keyNames(text)...)
	}
	all := map[string][]mutant{}
	for file, text := range files {
		var err error
		if all[file], err = generate(file, text, keys); err != nil {
			t.Fatalf("%s.lua: %v", file, err)
		}
	}
	return all
}

// filesOf returns the scripts of a commit.
func filesOf(t *testing.T, commit string) map[string]string {
	t.Helper()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("NOONLOCK_MUTANTS: git %s: %v", args, err)
		}
		return string(out)
	}
	files := map[string]string{}
	for path := range strings.Lines(git("ls-tree", "-r", "--name-only", commit)) {
		path = strings.TrimSuffix(path, "\n")
		if name, isScript := strings.CutSuffix(filepath.Base(path), ".lua"); isScript {
			files[name] = git("show", commit+":"+path)
		}
	}
	return files
}

// keepNew drops the mutants that the scripts of a commit have too: those of lines that did not change since.
func keepNew(t *testing.T, all map[string][]mutant, commit string) {
	t.Helper()
	for file, old := range mutantsOf(t, filesOf(t, commit)) {
		all[file] = slices.DeleteFunc(all[file], func(m mutant) bool {
			return slices.ContainsFunc(old, func(o mutant) bool { return o.key == m.key })
		})
	}
	maps.DeleteFunc(all, func(_ string, m []mutant) bool { return len(m) == 0 })
}

// changes reports whether the edits change any of these scripts.
func (l *library) changes(names []string, edits []edit) bool {
	return slices.ContainsFunc(names, func(name string) bool { return l.load(name, nil).id != l.load(name, edits).id })
}

// loads checks that a server accepts the scripts that include a mutant.
func (l *library) loads(t *testing.T, rdb *redis.Client, m mutant) {
	t.Helper()
	for name := range l.files {
		if strings.HasPrefix(name, "part_") || !l.changes([]string{name}, []edit{m.edit}) {
			continue
		}
		if err := rdb.ScriptLoad(t.Context(), l.load(name, []edit{m.edit}).source).Err(); err != nil {
			t.Fatalf("%v: %v", m, err)
		}
	}
}

// Every mutant is detected by a test or an exploration, or listed in survivors.txt with the reason
// why it cannot be. If a guard could be removed undetected, either the guard would be useless or
// the tests would be incomplete. NOONLOCK_MUTANTS is "all", or names the files whose mutants are tried, with commas
// between them, or is "since:" and a commit for the unlisted mutants of the lines that changed since then. Otherwise
// the test is skipped.
func TestMutants(t *testing.T) {
	wanted := strings.Split(os.Getenv("NOONLOCK_MUTANTS"), ",")
	if wanted[0] == "" {
		t.Skip("all mutants take half an hour: .ci/run tries those of changed lines, make nightly all")
	}
	l := newLibrary(t)
	hints, survivors := readKillers(t), readSurvivors(t)
	all := mutantsOf(t, l.files)
	rdb := redis.NewClient(&redis.Options{Addr: servers.Redis(t).Addr()})
	defer rdb.Close()
	for _, m := range slices.Concat(slices.Collect(maps.Values(all))...) {
		l.loads(t, rdb, m)
	}
	h := newHunt(t, l)
	for file := range hints {
		if l.files[file] == "" {
			t.Errorf("killers.txt: there is no %s.lua", file)
		}
	}
	for name, line := range survivors {
		file, _, _ := strings.Cut(name, ":")
		if !slices.ContainsFunc(all[file], func(m mutant) bool { return m.name() == name }) {
			t.Errorf("survivors.txt:%d: no mutant is called %s", line, name)
		}
	}
	t.Run("the check", func(t *testing.T) { h.isFair(t, l, all["mutex_renew"]) })
	commit, changedOnly := strings.CutPrefix(wanted[0], "since:")
	if changedOnly {
		keepNew(t, all, commit)
	}
	files := wanted
	if changedOnly || wanted[0] == "all" {
		files = slices.Sorted(maps.Keys(all))
	}
	var killed, listed atomic.Int64
	t.Run("of", func(t *testing.T) {
		for _, file := range files {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				if len(all[file]) == 0 {
					t.Fatalf("NOONLOCK_MUTANTS: there is no mutant of %s.lua", file)
				}
				killers, err := h.named(hints[file])
				if err != nil {
					t.Fatalf("killers.txt: %s: %v", file, err)
				}
				for _, k := range killers {
					must(t, k.sound(t))
				}
				for _, m := range all[file] {
					isListed := survivors[m.name()] > 0
					if isListed && changedOnly { // it would meet every test, which takes long
						listed.Add(1)
						continue
					}
					by, why, err := h.hunt(t, m, killers, isListed)
					if err == nil && by == "" && !isListed {
						by, err = h.anything(t, m)
					}
					switch {
					case err != nil:
						t.Errorf("%v: %v", m, err)
					case by == "" && !isListed:
						t.Errorf("nothing notices %v", m)
					case by != "" && isListed:
						t.Errorf("survivors.txt lists what %s notices: %v: %s", by, m, why)
					case isListed:
						listed.Add(1)
					default:
						killed.Add(1)
					}
				}
			})
		}
	})
	servers.Count(t, "of the mutants of %d files %d were noticed, and %d are listed as survivors", len(files), killed.Load(), listed.Load())
}

// isFair checks that the hunt does not count wrong failures as detections. It uses mutants of
// mutex_renew.
func (h *hunt) isFair(t *testing.T, l *library, mutants []mutant) {
	t.Helper()
	noticed := func(test string, tried ...mutant) (n int) {
		t.Helper()
		killers, err := h.named([]string{test})
		must(t, err)
		must(t, killers[0].sound(t))
		for _, m := range tried {
			by, _, err := h.hunt(t, m, killers, true)
			must(t, err)
			if by != "" {
				n++
			}
		}
		return n
	}
	const weak, strong = "TestTokenOfASpoiltCounter/bubble", "TestScriptPlays/renewals"
	if n := noticed(weak, mutants...); n > 0 {
		t.Errorf("%s, which renews nothing, is said to notice %d mutants", weak, n)
	}
	if n := noticed(strong, mutants...); n < len(mutants)/2 {
		t.Errorf("%s notices %d of %d mutants", strong, n, len(mutants))
	}
	same := mutant{edit: edit{"mutex_renew", l.files["mutex_renew"]}, key: "nothing"}
	if noticed(strong, same) > 0 {
		t.Errorf("%s notices that nothing was changed", strong)
	}
	endless := edit{"mutex_renew", "while redis do\nend\n" + same.text}
	if _, failed, err := h.suite.run("lockcore", strong, endless, time.Second); failed || !errors.Is(err, errTimedOut) {
		t.Errorf("of a script that does not end the suite says %v, %v", failed, err)
	}
	if _, _, err := h.suite.run("lockcore", "TestNothing", same.edit, time.Minute); err == nil {
		t.Error("a test that does not exist passes")
	}
}

// readSurvivors reads the list of mutants that are not detected: reasons, and indented mutants below each. It
// returns the line of each.
func readSurvivors(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile("testdata/survivors.txt")
	must(t, err)
	all, reason := map[string]int{}, ""
	for i, line := range strings.Split(string(text), "\n") {
		name, indented := strings.CutPrefix(line, "\t")
		switch {
		case indented && reason == "":
			t.Fatalf("survivors.txt:%d: want a reason, and below it lines of a tab, a file, a colon and a mutant", i+1)
		case indented:
			all[name] = i + 1
		case line != "" && line[0] != '#':
			reason = line
		}
	}
	return all
}

// readKillers reads the killers of each file.
func readKillers(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/killers.txt")
	must(t, err)
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		file, names, ok := strings.Cut(line, ":")
		if !ok || all[file] != nil {
			t.Fatalf("killers.txt: want a file, a colon and names, each file once: %s", line)
		}
		all[file] = strings.Fields(names)
	}
	return all
}
