package wire

import (
	"fmt"
	"io/fs"
	"reflect"
	"slices"
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

// A request in a cluster has a key more, after the others, and sharded messages. So has the
// request with the source.
func TestInCluster(t *testing.T) {
	t.Parallel()
	s := newScript("x", "return redis.pcall('PUBLISH', 1)")
	r := s.Call(Keys("p:{n}:a", "p:{n}:b"), "v", 1)
	args := slices.Clone(r.Args)
	p := r.InCluster()
	if want := []any{"evalsha", s.sharded.sha, 3, "p:{n}:a", "p:{n}:b", "p:{n}:a:never", "v", 1}; !reflect.DeepEqual(p.Args, want) {
		t.Errorf("in a cluster: %v, want %v", p.Args, want)
	}
	if want := []any{"eval", Naming("return redis.pcall('SPUBLISH', 1)"), 3, "p:{n}:a", "p:{n}:b", "p:{n}:a:never", "v", 1}; !reflect.DeepEqual(p.WithSource().Args, want) {
		t.Errorf("with source: %v, want %v", p.WithSource().Args, want)
	}
	if s.sha == s.sharded.sha || r.Args[1] != s.sha {
		t.Errorf("the request has the digest %v; the script %s and %s", r.Args[1], s.sha, s.sharded.sha)
	}
	if !reflect.DeepEqual(r.Args, args) {
		t.Errorf("InCluster changed the request to %v", r.Args)
	}
	if c := Command("time").InCluster(); !reflect.DeepEqual(c, Command("time")) {
		t.Errorf("a plain command is %v", c)
	}
}
