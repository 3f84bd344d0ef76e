package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

var (
	faultTest   = regexp.MustCompile(`(?m)^func (TestFault((?:\d{2,3}(?:_|And))*\d{2,3})(?:_\w+)?)\(`)
	faultNumber = regexp.MustCompile(`\d{2,3}`)
	faultRow    = regexp.MustCompile(`(?m)^\| (\d+)(?:(–|, )(\d+))? \| .* \| [SD] \| `)
)

// Every row of docs/FAULTS.md has a test with its number, and every such test has a row.
// testdata/faults.txt lists all these tests, so that none can be lost unnoticed. The tests in the table of common
// mistakes in SAFETY.md exist, too.
func TestFaultsAreTested(t *testing.T) {
	t.Parallel()
	text := testenv.Call(os.ReadFile("FAULTS.md")).Must(t)
	told := map[int]bool{}
	for _, row := range faultRow.FindAllStringSubmatch(string(text), -1) {
		first, _ := strconv.Atoi(row[1])
		told[first] = true
		if last, _ := strconv.Atoi(row[3]); row[2] == "–" {
			for n := first; n <= last; n++ {
				told[n] = true
			}
		} else if row[2] != "" {
			told[last] = true
		}
	}
	if len(told) < 50 {
		t.Fatalf("only %d faults were read from FAULTS.md", len(told))
	}
	tested, found := map[int]bool{}, map[string]bool{}
	var sources strings.Builder
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		sources.Write(source)
		for _, m := range faultTest.FindAllStringSubmatch(string(source), -1) {
			folder, _ := filepath.Rel("..", filepath.Dir(path))
			found[filepath.ToSlash(folder)+" "+m[1]] = true
			for _, n := range faultNumber.FindAllString(m[2], -1) {
				number, _ := strconv.Atoi(n)
				tested[number] = true
			}
		}
		return err
	})
	testenv.Must(t, err)
	for n := range 200 {
		if told[n] != tested[n] {
			t.Errorf("fault %d: in FAULTS.md %v, with a test %v", n, told[n], tested[n])
		}
	}
	_, mistakes, _ := strings.Cut(string(testenv.Call(os.ReadFile("SAFETY.md")).Must(t)), "\n## Common mistakes\n")
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(mistakes, -1) {
		if !strings.Contains(sources.String(), "\nfunc "+m[1]+"(t *testing.T)") {
			t.Errorf("SAFETY.md: %s does not exist", m[1])
		}
	}
	list := testenv.Call(os.ReadFile("testdata/faults.txt")).Must(t)
	listed := strings.Split(strings.TrimSpace(string(list)), "\n")
	for _, name := range listed {
		if !found[name] {
			t.Errorf("testdata/faults.txt lists a test that does not exist: %s", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("testdata/faults.txt does not list the test %s", name)
	}
	if !slices.IsSorted(listed) {
		t.Error("testdata/faults.txt is not sorted")
	}
}
