package wire

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// A part is taken from the package's own folder, or else from the shared one.
func TestLoader(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"lua/a.lua":        {Data: []byte("-- a: a comment\n--@include own\n--@include token\nreturn 1\n")},
		"lua/part_own.lua": {Data: []byte("local own = 1 -- kept\n\n  -- not kept\n")},
		"lua/b.lua":        {Data: []byte("--@include nowhere\n")},
	}
	shared, err := fs.ReadFile(sharedFiles, "lua/part_token.lua")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLoader(files)
	a := l.Script("a")
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	if want := "local own = 1 -- kept\n" + stripComments(string(shared)) + "return 1\n"; a.Source() != want {
		t.Errorf("a is %q, want %q", a.Source(), want)
	}
	files["lua/part_token.lua"] = &fstest.MapFile{Data: []byte("local mine = 1\n")}
	if source := l.Script("a").Source(); !strings.Contains(source, "local mine = 1\n") || len(fmt.Sprint(l.Script("a").sha)) != 40 {
		t.Errorf("a is %q, without the package's own part", source)
	}
	for _, missing := range []string{"b", "c"} {
		l := NewLoader(files)
		if s := l.Script(missing); s != nil || l.Err() == nil || !strings.Contains(l.Err().Error(), "script "+missing) {
			t.Errorf("script %s is %+v, %v", missing, s, l.Err())
		}
	}
}
