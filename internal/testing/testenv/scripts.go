package testenv

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// mutantVariable is the environment variable in which test/explorer passes a mutation; see edited.
const mutantVariable = "NOONLOCK_MUTANT"

// Run runs the tests of a package for its TestMain. files are the scripts of the package. If there is a mutation, Run
// calls use with the changed scripts.
func Run(m *testing.M, files fs.FS, use func(fs.FS)) (code int) {
	if mutant := os.Getenv(mutantVariable); mutant != "" {
		use(edited(files, mutant))
	}
	redis.SetLogger(&DependencyLog)
	// Most tests wait for a server or for time to pass, so more tests run in parallel than
	// there are processors. The command line overrides this.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	return m.Run()
}

// edited returns the scripts with one file changed. mutation is JSON: {"File": name, "Text": new text}. test/explorer
// expects a test to fail. A part in another package is not changed there: its changed copy is added to these scripts.
func edited(files fs.FS, mutation string) fs.FS {
	var m struct{ File, Text string }
	all := fstest.MapFS{}
	err := json.Unmarshal([]byte(mutation), &m)
	for _, name := range scriptPaths(files) {
		source, failed := fs.ReadFile(files, name)
		all[name], err = &fstest.MapFile{Data: source}, errors.Join(err, failed)
	}
	changed := "lua/" + m.File + ".lua"
	if err != nil || all[changed] == nil && !strings.HasPrefix(m.File, "part_") {
		panic(fmt.Sprintf("there is no %s: %v", changed, err))
	}
	all[changed] = &fstest.MapFile{Data: []byte(m.Text)}
	return all
}

func scriptPaths(files fs.FS) []string {
	all, _ := fs.Glob(files, "lua/*.lua") // the pattern is valid
	return all
}

// Scripts are the scripts of the package under test.
type Scripts struct{ Files fs.FS }

// Source returns the text of a script.
func (s Scripts) Source(t testing.TB, name string) string {
	t.Helper()
	l := wire.NewLoader(s.Files)
	script := l.Script(name)
	Must(t, l.Err())
	return script.Source()
}

// Match returns a lockcoretest.Fault.Match for requests that run a script, at one server or in a cluster.
func (s Scripts) Match(t testing.TB, name string) func([]string) bool {
	t.Helper()
	sent := wire.Naming(s.Source(t, name))
	plain, sharded := lockcoretest.Script(sent), lockcoretest.Script(wire.Sharded(sent))
	return func(cmd []string) bool { return plain(cmd) || sharded(cmd) }
}

// Commands returns the commands, in lower case, that the Lua files of these patterns call. A user without the right to
// call one of them cannot run the scripts. PUBLISH is left out: without it, everything works but is slower.
func Commands(t testing.TB, patterns ...string) []string {
	t.Helper()
	all := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		Must(t, err)
		if len(files) == 0 {
			t.Fatalf("there is no %s", pattern)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			Must(t, err)
			for _, call := range commandCall.FindAllSubmatch(text, -1) {
				all[strings.ToLower(string(call[1]))] = true
			}
		}
	}
	delete(all, "publish")
	return slices.Sorted(maps.Keys(all))
}

var commandCall = regexp.MustCompile(`redis\.p?call\('(\w+)'`)

var (
	declared  = regexp.MustCompile(`(?m)^-- +(KEYS|ARGV)\[(\d+)\](\.\.\.)? +\w+ `)
	used      = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	unindexed = regexp.MustCompile(`\b(KEYS|ARGV)\b(?:[^\[]|\[[^\d])`)
)

// CheckHeaders asserts that the header of each script declares its KEYS and ARGV, its
// return values, and why running it twice is safe.
func (s Scripts) CheckHeaders(t *testing.T) {
	t.Helper()
	all := scriptPaths(s.Files)
	if len(all) == 0 {
		t.Fatal("there are no scripts")
	}
	for _, path := range all {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "lua/"), ".lua")
		if strings.HasPrefix(name, "part_") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := fs.ReadFile(s.Files, path)
			Must(t, err)
			source, listed, taken := s.Source(t, name), map[string]bool{}, map[string]bool{}
			for _, m := range declared.FindAllStringSubmatch(string(file), -1) {
				listed[m[1]+" "+m[2]] = true
			}
			for _, m := range used.FindAllStringSubmatch(source, -1) {
				taken[m[1]+" "+m[2]] = true
			}
			if !maps.Equal(listed, taken) {
				t.Errorf("declared %v, used %v", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(taken)))
			}
			if m := unindexed.FindString(source); m != "" {
				t.Errorf("%q: only KEYS[n] and ARGV[n] can be checked", m)
			}
			for _, want := range []string{"-- " + name + ": ", "Returns ", "\n-- Twice is safe"} {
				if !strings.Contains(string(file), want) {
					t.Errorf("the header lacks %q", want)
				}
			}
		})
	}
}

// A Timed is a test of scripts with exact milliseconds: in a bubble no time passes while
// scripts run. Its clock starts between two full seconds.
type Timed struct {
	*Env
	Scripts Scripts
	Now     time.Time
}

// ToTheMillisecond runs a Timed test.
func (s Scripts) ToTheMillisecond(t *testing.T, test func(e *Timed)) {
	t.Helper()
	t.Parallel()
	InBubble(t, func(e *Env) {
		e.Pass(1234*time.Millisecond + 567*time.Microsecond)
		test(&Timed{e, s, time.Now()})
	})
}

// MS returns the instant that is later than Now by the given duration, as scripts write it.
func (e *Timed) MS(later time.Duration) string {
	return strconv.FormatInt(e.Now.Add(later).UnixMilli(), 10)
}

// Run runs a script and returns its answer or error as text.
func (e *Timed) Run(script string, keys []string, args ...any) string {
	e.Helper()
	answer, err := e.Raw.Eval(e.Context(), e.Scripts.Source(e, script), keys, args...).Result()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer)
}

// IsScript reports whether a request runs a script of the library: with EVAL in the first call, then with EVALSHA.
// Requests of wire.Command are EVAL, too, but contain unpack(ARGV).
func IsScript(cmd []string) bool {
	return strings.EqualFold(cmd[0], "evalsha") || strings.EqualFold(cmd[0], "eval") && !strings.Contains(cmd[1], "unpack(ARGV)")
}

// Command matches the requests of wire.Command for a command.
func Command(name string) func(cmd []string) bool {
	return func(cmd []string) bool {
		return strings.EqualFold(cmd[0], "eval") && slices.ContainsFunc(cmd[3:], func(arg string) bool { return strings.EqualFold(arg, name) })
	}
}
