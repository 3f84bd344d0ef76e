package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	faultTest   = regexp.MustCompile(`(?m)^func TestFault((?:\d\d(?:_|And))*\d\d)(?:_|\()`)
	faultNumber = regexp.MustCompile(`\d\d`)
	faultRow    = regexp.MustCompile(`(?m)^\| (\d+)(?:(–|, )(\d+))? \| .* \| [SD] \| `)
)

// Every row of docs/FAULTS.md has a test with its number, and every such test has a row.
func TestFaultsAreTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("FAULTS.md")
	if err != nil {
		t.Fatal(err)
	}
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
	tested := map[int]bool{}
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range faultTest.FindAllStringSubmatch(string(source), -1) {
			for _, n := range faultNumber.FindAllString(m[1], -1) {
				number, _ := strconv.Atoi(n)
				tested[number] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		if told[n] != tested[n] {
			t.Errorf("fault %d: in FAULTS.md %v, with a test %v", n, told[n], tested[n])
		}
	}
}
