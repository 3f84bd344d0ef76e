package entrants_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
)

func list(text string) entrants.List {
	return entrants.FS(fstest.MapFS{"list.csv": {Data: []byte(text)}}, "list.csv")
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"plain":                 "id,eligible\na,true\nb b,false\n",
		"no newline at the end": "id,eligible\na,true\nb b,false",
		"windows":               "\ufeffid,eligible\r\na,true\r\nb b,false\r\n",
		"quoted":                "id,eligible\n\"a\",true\n\"b b\",\"false\"\n",
	} {
		l := list(text)
		totals, err := l.Check()
		if err != nil || totals != (entrants.Totals{Entrants: 2, Eligible: 1}) {
			t.Errorf("%s: Check = %+v, %v", name, totals, err)
		}
		var got []entrants.Entrant
		if err := l.Each(func(e entrants.Entrant) error { got = append(got, e); return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(got, []entrants.Entrant{{ID: "a", Eligible: true}, {ID: "b b"}}) {
			t.Errorf("%s: read %+v", name, got)
		}
	}
	unusual := "id,eligible\n\"a,\"\"b\"\"\",true\nłódź-😀,true\n" + strings.Repeat("x", entrants.MaxID) + ",false\n"
	var ids []string
	if err := list(unusual).Each(func(e entrants.Entrant) error { ids = append(ids, e.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{`a,"b"`, "łódź-😀", strings.Repeat("x", entrants.MaxID)}; !slices.Equal(ids, want) {
		t.Errorf("read %q", ids)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	const head = "id,eligible\n"
	for _, c := range []struct{ text, place, problem string }{
		{"", "list.csv:", "empty"},
		{head, "list.csv:", "no entrant"},
		{"id;eligible\n", "list.csv:1:1:", "header"},
		{"\n", "list.csv:1:1:", "header"},
		{"a,true\n", "list.csv:1:1:", "header"},
		{"\xff\xfei\x00d\x00", "list.csv:1:1:", "header"},
		{head + "a,true\n,true\n", "list.csv:3:1:", "empty"},
		{head + "\na,true\n", "list.csv:2:1:", "empty"},
		{head + "a,true\n\n", "list.csv:3:1:", "empty"},
		{head + "abc\n", "list.csv:2:1:", "fields is 1"},
		{head + "abc,true,1\n", "list.csv:2:1:", "fields is 3"},
		{head + "abc,yes\n", "list.csv:2:5:", `"yes"`},
		{head + "abc,True\n", "list.csv:2:5:", `"True"`},
		{head + "abc,\n", "list.csv:2:5:", "true or false"},
		{head + "abc, true\n", "list.csv:2:5:", "true or false"},
		{head + strings.Repeat("x", 201) + ",true\n", "list.csv:2:1:", "at most 200 bytes, not 201"},
		{head + "a\xff,true\n", "list.csv:2:1:", "UTF-8"},
		{head + "a\x00b,true\n", "list.csv:2:1:", "control"},
		{head + "a\tb,true\n", "list.csv:2:1:", "control"},
		{head + "a ,true\n", "list.csv:2:1:", "space"},
		{head + "\"a\nb\",true\n", "list.csv:2:", "not closed"},
		{head + "a,true\n\"a" + strings.Repeat("\nb,true", 100000), "list.csv:3:", "not closed"},
		{head + "\"a\"b,true\n", "list.csv:2:3:", "not doubled"},
		{head + "a\"b,true\n", "list.csv:2:2:", "quote"},
		{head + "a,true\nb,false\nc,true\nb,true\n", "list.csv:5:1:", "already in line 3"},
		{head + strings.Repeat("x", 1<<20), "list.csv:2:1:", "longer than"},
	} {
		totals, err := list(c.text).Check()
		if _, ok := errors.AsType[*entrants.Error](err); !ok {
			t.Errorf("%.40q: %+v, %v", c.text, totals, err)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "entrants: "+c.place) || !strings.Contains(text, c.problem) || len(text) > 300 {
			t.Errorf("%.40q: %s; want %s … %s", c.text, err, c.place, c.problem)
		}
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	missing := filepath.Join(folder, "missing.csv")
	if _, err := entrants.File(missing).Check(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := entrants.File(folder).Check(); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := (entrants.List{}).Check(); err == nil {
		t.Error("no list at all is accepted")
	}
}

func TestEachStops(t *testing.T) {
	t.Parallel()
	errStop := errors.New("stop")
	calls := 0
	err := list("id,eligible\na,true\nb,true\n").Each(func(entrants.Entrant) error { calls++; return errStop })
	if !errors.Is(err, errStop) || calls != 1 {
		t.Errorf("Each = %v after %d calls", err, calls)
	}
}

// The bundled list of the demo.
func TestBundled(t *testing.T) {
	t.Parallel()
	totals, err := entrants.FS(os.DirFS("../.."), "entrants.csv").Check()
	if err != nil || totals.Entrants != 200 || totals.Eligible != 160 {
		t.Errorf("Check = %+v, %v; want 200 entrants, 160 of them eligible", totals, err)
	}
}

// Many ids, one of them twice, with the greatest possible distance.
func TestDuplicateAmongMany(t *testing.T) {
	t.Parallel()
	const many = 200_000
	var b strings.Builder
	b.WriteString("id,eligible\n")
	for i := range many {
		fmt.Fprintf(&b, "entrant-%07d,true\n", i)
	}
	if totals, err := list(b.String()).Check(); err != nil || totals.Eligible != many {
		t.Fatalf("Check = %+v, %v", totals, err)
	}
	b.WriteString("entrant-0000000,false\n")
	_, err := list(b.String()).Check()
	if err == nil || !strings.Contains(err.Error(), `list.csv:200002:1: the id "entrant-0000000" is already in line 2`) {
		t.Errorf("Check: %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"id,eligible\na,true\n", "id,eligible\n\"a\"\"\",false\r\n", "\ufeffid,eligible\nx,y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		totals, err := list(text).Check()
		if err != nil {
			if _, ok := errors.AsType[*entrants.Error](err); !ok {
				t.Fatalf("Check: %v", err)
			}
			return
		}
		seen := map[string]bool{}
		if err := list(text).Each(func(e entrants.Entrant) error {
			if seen[e.ID] || e.ID == "" || strings.ContainsAny(e.ID, "\n\r\x00") {
				t.Fatalf("accepted id %q", e.ID)
			}
			seen[e.ID] = true
			return nil
		}); err != nil || len(seen) != totals.Entrants {
			t.Fatalf("%d ids, %d counted, %v", len(seen), totals.Entrants, err)
		}
	})
}
