package explorer

import (
	"slices"
	"strings"
	"testing"
)

// keysOf returns the keys of a script's mutants, without the common original statement.
func keysOf(t *testing.T, text string) []string {
	t.Helper()
	mutants, err := generate("", text, append(keyNames(text), "lock", "queue", "fence"))
	must(t, err)
	var keys []string
	for _, m := range mutants {
		_, after, _ := strings.Cut(m.key, " => ")
		keys = append(keys, after)
	}
	slices.Sort(keys)
	return keys
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a condition", "if a == 1 then", []string{"if not redis then", "if redis then"}},
		{"a conjunction", "if a and b then", []string{"if b then", "if a then", "if not redis then"}},
		{"a disjunction", "if a or f(b) then", []string{"if a then", "if f(b) then", "if redis then"}},
		{"both", "if a and (b or c) then", []string{"if (b or c) then", "if a then", "if a and ( c) then", "if a and (b ) then", "if not redis then"}},
		{"over two lines", "if a\n  and b then", []string{"if b then", "then", "if not redis then"}},
		{"another branch", "elseif a < b then", []string{"elseif a <= b then", "elseif not redis then", "elseif redis then"}},
		{"a loop", "while a do", []string{"while not redis do"}},
		{"an equation", "local a = b == c", []string{"local a = b ~= c"}},
		{"a default", "local a = f(b) or c", []string{"local a = c", "local a = f(b)"}},
		{"a bound", "local a = b > c", []string{"local a = b >= c"}},
		{"one more", "local a = b + 1", []string{"local a = b + 0"}},
		{"a sum", "local a = b + c", []string{"local a = b - c"}},
		{"a difference", "local a = b - c", []string{"local a = b + c"}},
		{"a sign", "local a = f(b, -1)", []string{"local a = f(b, -2)"}},
		{"a number", "local a = 41", []string{"local a = 42"}},
		{"a large number", "local a = 1000", []string{"local a = 2000"}},
		{"an index", "local a = b[1]", nil},
		{"the first of a range", "local a = redis.call('ZRANGE', q, 0, 0)[1]", []string{"local a = redis.call('ZRANGE', q, 1, 0)[1]"}},
		{"a loop that counts", "for _ = 1, 100 do", []string{"for _ = 1, 1 do"}},
		{"a loop over pairs", "for i = 1, #all, 2 do", nil},
		{"a greater one", "local a = math.max(f(b, c), d)", []string{"local a = d", "local a = f(b, c)"}},
		{"an assignment", "a.b = c", []string{"nothing"}},
		{"a statement of two lines", "f(a,\n  b)", []string{"nothing"}},
		{"two returns", "if a then\n  return 1\nend\nreturn b", []string{"nothing", "nothing", "if not redis then", "if redis then", "return 2"}},
		{"a write", "redis.call('HSET', key, 'a', b, 'c', d)", []string{"nothing", "redis.call('HSET', key, 'a', b)", "redis.call('HSET', key, 'c', d)"}},
		{"a write of one field", "redis.call('HSET', key, 'a', b)", []string{"nothing"}},
		{"a write that ends", "redis.call('SET', key, a, 'PX', b, 'GET')", []string{"nothing", "redis.call('SET', key, a, 'GET')", "redis.call('SET', key, a, 'PX', b)"}},
		{"keys of one command", "local a = redis.call('EXISTS', lock, queue)", []string{"local a = redis.call('EXISTS', lock)", "local a = redis.call('EXISTS', queue)"}},
		{"keys of a call", "f(lock, queue, a)", []string{"nothing", "f(queue, lock, a)"}},
		{"keys of a function", "local function f(lock, queue)", nil},
		{"a binding", "local a, b = KEYS[1], KEYS[2]", []string{"local a, b = KEYS[2], KEYS[1]"}},
		{"fields", "local a = {b = c, d = e}", []string{"local a = {b = c, }", "local a = { d = e}"}},
		{"an error that may be", "local a = redis.pcall('GET', b)", []string{"local a = redis.call('GET', b)"}},
		{"a comment", "-- if a then\nlocal a = b -- 1 + 1", nil},
		{"a text", "local a = 'if b + 1'", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			slices.Sort(c.want)
			if got := keysOf(t, c.text); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"local a = (b", "local a = [[b]", "local a = b & c"} {
		if _, err := generate("", text, nil); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
