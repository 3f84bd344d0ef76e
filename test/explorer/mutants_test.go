package explorer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
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

	"github.com/noonlock/noonlock/internal/servers"
)

// A mutant is a script with one change.
type mutant struct {
	edit
	key  string // its name in survivors.txt, without the file
	line int
}

func (m mutant) String() string { return fmt.Sprintf("%s.lua:%d: %s", m.file, m.line, m.key) }

// mutants returns the mutants of each file that are valid Lua for a server.
func mutants(t *testing.T, l *library) map[string][]mutant {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: servers.Redis(t).Addr()})
	defer rdb.Close()
	all := map[string][]mutant{}
	for file, generated := range generate(t, l.files) {
		for _, m := range generated {
			loads, err := l.loads(t, rdb, m.edit)
			if err != nil {
				t.Fatalf("%v: %v", m, err)
			}
			if loads {
				all[file] = append(all[file], m)
			} else {
				t.Errorf("%v: is no Lua", m)
			}
		}
	}
	return all
}

func generate(t *testing.T, files map[string]string) map[string][]mutant {
	t.Helper()
	var keys []string
	for _, text := range files {
		keys = append(keys, KeyNames(text)...)
	}
	all := map[string][]mutant{}
	for file, text := range files {
		generated, err := Generate(text, keys)
		if err != nil {
			t.Fatalf("%s.lua: %v", file, err)
		}
		for _, g := range generated {
			all[file] = append(all[file], mutant{edit{file, g.Text}, g.Key, g.Line})
		}
	}
	return all
}

// filesOf returns the scripts of a commit.
func filesOf(t *testing.T, commit string) map[string]string {
	t.Helper()
	archive := exec.Command("git", "archive", commit, "*.lua")
	archive.Dir = "../.."
	out, err := archive.Output()
	if err != nil {
		t.Fatalf("NOONLOCK_MUTANTS: git archive %s: %v", commit, err)
	}
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, isScript := strings.CutSuffix(filepath.Base(header.Name), ".lua")
		if !isScript {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
}

// keepNew drops the mutants that the scripts of a commit have too: those of lines that did not change since.
func keepNew(t *testing.T, all map[string][]mutant, commit string) {
	t.Helper()
	for file, old := range generate(t, filesOf(t, commit)) {
		all[file] = slices.DeleteFunc(all[file], func(m mutant) bool {
			return slices.ContainsFunc(old, func(o mutant) bool { return o.key == m.key })
		})
	}
	maps.DeleteFunc(all, func(_ string, m []mutant) bool { return len(m) == 0 })
}

// changes reports whether the edits change any of these scripts.
func (l *library) changes(names []string, edits []edit) (bool, error) {
	for _, name := range names {
		if name == "" {
			continue
		}
		before, err := l.load(name, nil)
		if err != nil {
			return false, err
		}
		after, err := l.load(name, edits)
		if err != nil || before.id != after.id {
			return err == nil, err
		}
	}
	return false, nil
}

// loads reports whether a server accepts the scripts that include an edited file.
func (l *library) loads(t *testing.T, rdb *redis.Client, e edit) (bool, error) {
	t.Helper()
	for name, text := range l.files {
		part, isPart := strings.CutPrefix(e.file, "part_")
		includes := isPart && strings.Contains(text, "\n--@include "+part+"\n")
		if name != e.file && !includes || strings.HasPrefix(name, "part_") {
			continue
		}
		s, err := l.load(name, []edit{e})
		if err != nil {
			return false, err
		}
		if err := rdb.ScriptLoad(t.Context(), s.source).Err(); err != nil {
			if redis.HasErrorPrefix(err, "ERR Error compiling script") {
				t.Log(err)
				return false, nil
			}
			return false, err
		}
	}
	return true, nil
}

// Every mutant is detected by a test or an exploration, or listed in survivors.txt with the reason
// why it cannot be. If a guard could be removed undetected, either the guard would be useless or
// the tests would be incomplete. NOONLOCK_MUTANTS is "all", or names the files whose mutants are tried, with commas
// between them, or is "since:" and a commit for the mutants of the lines that changed since then. Otherwise the test is
// skipped.
func TestMutants(t *testing.T) {
	wanted := strings.Split(os.Getenv("NOONLOCK_MUTANTS"), ",")
	if wanted[0] == "" {
		t.Skip("all mutants take a quarter of an hour: .ci/run tries those of changed lines, make nightly all")
	}
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	hints, err := readKillers("testdata/killers.txt")
	if err != nil {
		t.Fatal(err)
	}
	survivors, err := readSurvivors("testdata/survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := mutants(t, l)
	h := newHunt(t, l)
	for file := range hints {
		if l.files[file] == "" {
			t.Errorf("killers.txt: there is no %s.lua", file)
		}
	}
	unexamined := map[string]bool{} // files whose mutants are not examined
	for _, s := range survivors {
		if s.key == "*" && l.files[s.file] != "" {
			unexamined[s.file] = true
			continue
		}
		if !slices.ContainsFunc(all[s.file], func(m mutant) bool { return m.key == s.key }) {
			t.Errorf("survivors.txt:%d: no mutant is called %s: %s", s.line, s.file, s.key)
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
				if unexamined[file] {
					t.Logf("survivors.txt: the %d mutants of %s.lua are not examined", len(all[file]), file)
					return
				}
				killers, err := h.named(hints[file])
				if err != nil {
					t.Fatalf("killers.txt: %s: %v", file, err)
				}
				for _, k := range killers { // a killer that fails without a mutant would detect everything
					if err := k.sound(t); err != nil {
						t.Fatal(err)
					}
				}
				for _, m := range all[file] {
					isListed := slices.ContainsFunc(survivors, func(s survivor) bool { return s.file == file && s.key == m.key })
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
	servers.Count(t, "of the mutants of %d files %d were noticed, %d are listed as survivors, and those of %d files were not examined",
		len(files), killed.Load(), listed.Load(), len(unexamined))
}

// isFair checks that the hunt does not count wrong failures as detections. It uses mutants of
// mutex_renew.
func (h *hunt) isFair(t *testing.T, l *library, mutants []mutant) {
	t.Helper()
	hunted := func(m mutant, test string) string {
		t.Helper()
		killers, err := h.named([]string{test})
		if err == nil {
			err = killers[0].sound(t)
		}
		by := ""
		if err == nil {
			by, _, err = h.hunt(t, m, killers, true)
		}
		if err != nil {
			t.Errorf("%v: %v", m, err)
		}
		return by
	}
	const weak, strong = "TestTokenOfASpoiltCounter/bubble", "TestHoldsToTheMillisecond"
	noticed := 0
	for _, m := range mutants {
		if by := hunted(m, weak); by != "" {
			t.Errorf("%s, which renews nothing, is said to notice %v", by, m)
		}
		if hunted(m, strong) != "" {
			noticed++
		}
	}
	if noticed < len(mutants)/2 {
		t.Errorf("%s notices %d of %d mutants", strong, noticed, len(mutants))
	}
	same := mutant{edit: edit{"mutex_renew", l.files["mutex_renew"]}, key: "nothing"}
	if by := hunted(same, strong); by != "" {
		t.Errorf("%s notices that nothing was changed", by)
	}
	endless := mutant{edit: edit{"mutex_renew", "while redis do\nend\n" + same.text}, key: "it does not end"}
	if _, failed, err := h.suite.run("lockcore", strong, endless.edit, time.Second); failed || !errors.Is(err, errTimedOut) {
		t.Errorf("of a script that does not end the suite says %v, %v", failed, err)
	}
	if _, _, err := h.suite.run("lockcore", "TestNothing", same.edit, time.Minute); err == nil {
		t.Error("a test that does not exist passes")
	}
}

// A survivor is a mutant that is not detected. The key * stands for all mutants of a file that are
// not examined.
type survivor struct {
	file, key string
	line      int // in survivors.txt
}

// readSurvivors reads the list: reasons, and indented mutants below each.
func readSurvivors(path string) ([]survivor, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []survivor
	reason := ""
	for i, line := range strings.Split(string(text), "\n") {
		entry, indented := strings.CutPrefix(line, "\t")
		if !indented {
			if line != "" && !strings.HasPrefix(line, "#") {
				reason = line
			}
			continue
		}
		file, key, ok := strings.Cut(entry, ": ")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s:%d: want a reason, and below it lines of a tab, a file, a colon and a mutant", path, i+1)
		}
		all = append(all, survivor{file, key, i + 1})
	}
	return all, nil
}

// readKillers reads the killers of each file.
func readKillers(path string) (map[string][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		file, names, ok := strings.Cut(line, ":")
		if !ok || all[file] != nil {
			return nil, fmt.Errorf("%s: want a file, a colon and names, each file once: %s", path, line)
		}
		all[file] = strings.Fields(names)
	}
	return all, nil
}
