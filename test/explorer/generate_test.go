package explorer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A mutant is a script with one change.
type mutant struct {
	edit
	// key identifies it in its file: the original statement, an arrow, and the changed statement. It
	// does not contain the line number, so it stays valid when lines move.
	key  string
	line int // counted from 1, for readers
}

// name is the text of the mutant in survivors.txt.
func (m mutant) name() string { return m.file + ": " + m.key }

func (m mutant) String() string { return fmt.Sprintf("%s.lua:%d: %s", m.file, m.line, m.key) }

// generate changes a script at one place at a time, like a typical mistake, and returns the mutants. keys
// are the names of Redis keys. The key of a mutant shows which operator was applied:
//
//   - condition: an `if`, `elseif` or `while` is always or never taken
//   - operand: one side of an `and` or `or` is removed
//   - bound: `<` and `<=`, or `>` and `>=`, are exchanged; a `+ 1` or `- 1` is removed; `==` and
//     `~=` are exchanged outside of conditions
//   - sum: `+` and `-` are exchanged; math.max and math.min are replaced by one operand
//   - number: incremented by one; doubled from 1000; a counting loop runs once
//   - statement: a call, an assignment, a `return` or a `break` is removed
//   - write: a field of an HSET or of a table, an option of a SET, or a key of an EXISTS or DEL is
//     removed
//   - keys: two adjacent KEYS, or two adjacent arguments of a function, are swapped
//   - error: redis.pcall becomes redis.call
//
// Operators that follow from others are left out. If the tests detect that a condition is always
// true and that it is never true, they also detect its negation. If they detect each missing
// operand of an `and`, they also detect an `or` in its place.
//
// generate works on tokens, not on a syntax tree. It relies on the style of the scripts: one
// statement per line, no long strings, no semicolons. Every mutant of such a script is valid Lua.
func generate(file, text string, keys []string) ([]mutant, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	g := &generator{file: file, text: text, tokens: tokens, keys: keys, seen: map[string]bool{flat(text): true}, named: map[string]int{}}
	for i := range tokens {
		g.condition(i)
		g.operands(i)
		g.compare(i)
		g.arithmetic(i)
		g.literal(i)
		g.statement(i)
		g.call(i)
		g.fields(i)
		g.neighbours(i)
	}
	return g.mutants, nil
}

var bindings = regexp.MustCompile(`(?m)^local ([\w, ]+) = (KEYS\[.*)$`)

// keyNames returns the names to which a script binds its KEYS.
func keyNames(text string) []string {
	var names []string
	for _, m := range bindings.FindAllStringSubmatch(text, -1) {
		left, right := strings.Split(m[1], ", "), strings.Split(m[2], ", ")
		for i, name := range left {
			if i < len(right) && strings.HasPrefix(right[i], "KEYS[") {
				names = append(names, name)
			}
		}
	}
	return names
}

type generator struct {
	file    string
	text    string
	tokens  []word
	keys    []string
	seen    map[string]bool // texts of existing mutants
	named   map[string]int  // number of mutants with a key
	mutants []mutant
}

// replace adds the mutant in which tokens [from, to) are replaced.
func (g *generator) replace(from, to int, by string) {
	begin, end := g.tokens[from].begin, g.tokens[to-1].end
	mutated := g.text[:begin] + by + g.text[end:]
	if g.seen[flat(mutated)] {
		return
	}
	g.seen[flat(mutated)] = true
	first, last := g.lineAround(from, to)
	before, after := g.text[first:last], g.text[first:begin]+by+g.text[end:last]
	key := flat(before) + " => " + cmp.Or(flat(after), "nothing")
	g.named[key]++
	if n := g.named[key]; n > 1 {
		key += " (" + strconv.Itoa(n) + ")"
	}
	g.mutants = append(g.mutants, mutant{edit{g.file, mutated}, key, strings.Count(g.text[:begin], "\n") + 1})
}

// lineAround returns the range of the lines that contain tokens [from, to).
func (g *generator) lineAround(from, to int) (begin, end int) {
	begin = strings.LastIndexByte(g.text[:g.tokens[from].begin], '\n') + 1
	end = len(g.text)
	if i := strings.IndexByte(g.text[g.tokens[to-1].end:], '\n'); i >= 0 {
		end = g.tokens[to-1].end + i
	}
	return begin, end
}

var spaces = regexp.MustCompile(`\s+`)

// flat returns a text as one line without comments.
func flat(text string) string {
	var parts []string
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		parts = append(parts, code)
	}
	return strings.TrimSpace(spaces.ReplaceAllString(strings.Join(parts, " "), " "))
}

func (g *generator) is(i int, texts ...string) bool {
	return i >= 0 && i < len(g.tokens) && g.tokens[i].kind != str && slices.Contains(texts, g.tokens[i].text)
}

// until returns the index of the first token from i on that is one of texts and not inside further
// brackets, or len(tokens).
func (g *generator) until(i int, texts ...string) int {
	for depth := g.tokens[i].depth; i < len(g.tokens); i++ {
		if g.tokens[i].depth <= depth && g.is(i, texts...) {
			break
		}
	}
	return i
}

// The conditions are constant for readers but not for the compiler: miniredis's Lua miscompiles
// some branches with constant conditions, and tests would detect that instead of the mutant.
const always, never = "redis", "not redis"

// condition makes a condition always and never true: a conjunction only never, a disjunction only
// always. If the tests detect each missing operand, they also detect the other case.
func (g *generator) condition(i int) {
	if !g.is(i, "if", "elseif", "while") {
		return
	}
	end := g.until(i+1, "then", "do")
	and, or := false, false
	for j := i + 1; j < end; j++ {
		if g.tokens[j].depth == g.tokens[i].depth {
			and = and || g.is(j, "and")
			or = or || g.is(j, "or")
		}
	}
	if (or || !and) && !g.is(i, "while") {
		g.replace(i+1, end, always)
	}
	if and || !or {
		g.replace(i+1, end, never)
	}
}

// operands removes each side of `and` and `or`.
func (g *generator) operands(i int) {
	if !g.is(i, "and", "or") {
		return
	}
	left := i
	for left > 0 && !g.bounds(i, left-1, "and", "or", ",", "=", "return", "if", "elseif", "while") {
		left--
	}
	right := i + 1
	for right < len(g.tokens) && !g.bounds(i, right, "and", "or", ",", "then", "do", "end", "else", "elseif") &&
		(right == i+1 || !g.starts(right)) {
		right++
	}
	g.replace(left, i+1, "")
	g.replace(i, right, "")
}

// bounds reports whether an operand of the operator i ends before token j: at one of texts, or at a
// bracket around both.
func (g *generator) bounds(i, j int, texts ...string) bool {
	return g.tokens[j].depth < g.tokens[i].depth || g.tokens[j].depth == g.tokens[i].depth && g.is(j, texts...)
}

// compare moves bounds by one, and inverts equations outside of conditions.
func (g *generator) compare(i int) {
	switch text := g.tokens[i].text; {
	case g.is(i, "<", ">"):
		g.replace(i, i+1, text+"=")
	case g.is(i, "<=", ">="):
		g.replace(i, i+1, text[:1])
	case g.is(i, "==") && !g.inCondition(i):
		g.replace(i, i+1, "~=")
	case g.is(i, "~=") && !g.inCondition(i):
		g.replace(i, i+1, "==")
	}
}

// inCondition reports whether a token is in the condition of a branch.
func (g *generator) inCondition(i int) bool {
	for ; i >= 0; i-- {
		switch {
		case g.is(i, "if", "elseif", "while"):
			return true
		case g.is(i, "then", "do", "else", "return", "local", "end", "function", "="):
			return false
		}
	}
	return false
}

// arithmetic exchanges sums and differences, and removes an added one.
func (g *generator) arithmetic(i int) {
	binary := i > 0 && (g.tokens[i-1].kind == name || g.tokens[i-1].kind == numeral || g.is(i-1, ")", "]"))
	switch {
	case !g.is(i, "+", "-") || !binary:
	case g.is(i+1, "1") && !g.is(i+2, "*", "/"):
		g.replace(i+1, i+2, "0")
	case g.is(i, "+"):
		g.replace(i, i+1, "-")
	default:
		g.replace(i, i+1, "+")
	}
}

// literal increments numbers by one, and doubles large ones.
func (g *generator) literal(i int) {
	n, err := strconv.Atoi(g.tokens[i].text)
	switch {
	case g.tokens[i].kind != numeral || err != nil:
		return
	case g.is(i-1, "[") && g.is(i+1, "]"):
		return // another index is another key or argument, or nil
	case g.is(i-1, "==", "~=", "<", "<=", ">", ">=", "+", "or"):
		return // other operators change these, or an increment has no effect
	case g.is(i+1, ")") && g.is(i+2, "["):
		return // the end of a range of which one element is used
	case g.is(g.line(i), "for") && g.tokens[i].depth == 0:
		if g.is(i+1, "do") && g.is(i-3, "=") {
			g.replace(i, i+1, "1") // one iteration instead of many
		}
		return
	}
	if g.is(i-1, "-") { // a subtracted 1 is changed by arithmetic
		if n != 1 || g.is(i-2, ",", "(", "=", "return", "{") {
			g.replace(i, i+1, strconv.Itoa(n+1))
		}
		return
	}
	if n >= 1000 {
		g.replace(i, i+1, strconv.Itoa(2*n))
		return
	}
	g.replace(i, i+1, strconv.Itoa(n+1))
}

// line returns the first token of the line that contains a token.
func (g *generator) line(i int) int {
	for !g.tokens[i].first {
		i--
	}
	return i
}

// starts reports whether a statement begins with a token. The scripts have one statement per line.
func (g *generator) starts(i int) bool {
	t := g.tokens[i]
	switch {
	case t.depth > 0, t.kind == symbol, g.is(i, "and", "or"):
		return false
	case i == 0, g.is(i-1, "then", "do", "else"):
		return true
	case g.is(i-1, "and", "or", "not", "return"), g.tokens[i-1].kind == symbol && !g.is(i-1, ")", "]", "}"):
		return false // the previous line continues
	}
	return t.first
}

// statement removes calls, assignments and returns.
func (g *generator) statement(i int) {
	if !g.starts(i) {
		return
	}
	end := i + 1
	for end < len(g.tokens) && !g.starts(end) && (g.tokens[end].depth > 0 || !g.is(end, "end", "else", "elseif", "until")) {
		end++
	}
	t := g.tokens[i]
	if t.kind == name || g.is(i, "return", "break") {
		g.replace(i, end, "")
	}
}

// call changes the arguments of some calls.
func (g *generator) call(i int) {
	if !g.is(i, "(") || g.tokens[max(i-1, 0)].kind != name {
		return
	}
	end := g.closing(i)
	args := g.list(i+1, end)
	switch {
	case g.is(i-1, "pcall") && g.is(i-3, "redis"):
		g.replace(i-1, i, "call")
	case (g.is(i-1, "max") || g.is(i-1, "min")) && g.is(i-3, "math") && len(args) == 2:
		for _, a := range args {
			g.replace(i-3, end+1, g.text[g.tokens[a[0]].begin:g.tokens[a[1]-1].end])
		}
	}
	if !g.is(i-1, "call", "pcall") || len(args) < 3 {
		return
	}
	// A comma is removed with the item after it.
	drop := func(first, last int) { g.replace(args[first][0]-1, args[last][1], "") }
	switch command := strings.Trim(g.tokens[args[0][0]].text, "'"); command {
	case "EXISTS", "DEL", "UNLINK":
		for k := 1; k < len(args); k++ {
			drop(k, k)
		}
	case "HSET":
		for k := 2; len(args) > 4 && k+1 < len(args); k += 2 {
			drop(k, k+1)
		}
	case "SET":
		for k := 3; k < len(args); k++ {
			if g.tokens[args[k][0]].text == "'PX'" && k+1 < len(args) {
				drop(k, k+1)
				k++
			} else {
				drop(k, k)
			}
		}
	}
}

// closing returns the index of the closing bracket.
func (g *generator) closing(i int) int {
	end := i + 1
	for g.tokens[end].depth > g.tokens[i].depth {
		end++
	}
	return end
}

// list returns the ranges of the items between two brackets.
func (g *generator) list(from, to int) [][2]int {
	var items [][2]int
	for from < to {
		end := min(g.until(from, ","), to)
		items = append(items, [2]int{from, end})
		from = end + 1
	}
	return items
}

// fields removes the named fields of a table.
func (g *generator) fields(i int) {
	if !g.is(i, "{") {
		return
	}
	end := g.closing(i)
	for _, item := range g.list(i+1, end) {
		if g.tokens[item[0]].kind != name || !g.is(item[0]+1, "=") {
			continue
		}
		if g.is(item[1], ",") {
			item[1]++
		}
		g.replace(item[0], item[1], "")
	}
}

// neighbours swaps two keys, in the binding of KEYS and in calls of functions.
func (g *generator) neighbours(i int) {
	switch {
	case g.is(i, "KEYS") && g.is(i+4, ",") && g.is(i+5, "KEYS"):
		g.replace(i, i+9, fmt.Sprintf("KEYS[%s], KEYS[%s]", g.tokens[i+7].text, g.tokens[i+2].text))
	case g.tokens[i].depth > 0 && g.isKey(i) && g.is(i+1, ",") && g.isKey(i+2) && !g.inExists(i):
		g.replace(i, i+3, g.tokens[i+2].text+", "+g.tokens[i].text)
	}
}

// isKey reports whether a token is a complete argument and a key.
func (g *generator) isKey(i int) bool {
	return i > 0 && g.tokens[i].kind == name && slices.Contains(g.keys, g.tokens[i].text) && g.is(i-1, ",", "(") && g.is(i+1, ",", ")")
}

// inExists reports whether a token is an argument of a command whose keys may have any order.
func (g *generator) inExists(i int) bool {
	for i > 0 && !g.is(i, "(") {
		i--
		if slices.Contains([]string{"'EXISTS'", "'DEL'", "'UNLINK'"}, g.tokens[i].text) {
			return true
		}
	}
	return g.tokens[max(i-2, 0)].text == "function" // parameters; each call is mutated separately
}

// A word is a part of a script. begin and end are its position in the text.
type word struct {
	kind       kind
	text       string
	begin, end int
	depth      int  // numeral of open brackets around it
	first      bool // first word of its line
}

type kind uint8

const (
	keyword kind = iota
	name
	numeral
	str
	symbol
)

// lexeme matches what is skipped, or a word of each kind.
var lexeme = regexp.MustCompile(`^(?:(--[^\n]*|[ \t\r\n]+)` +
	`|((?:and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until|while)\b)` +
	`|([A-Za-z_]\w*)` +
	`|(\d[\w.]*)` +
	`|('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")` +
	`|(\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.]))`)

// lex splits a script into tokens. It does not support long strings and long comments, which the
// scripts do not contain.
func lex(text string) ([]word, error) {
	var all []word
	depth, fresh := 0, true
	for begin, at := 0, 0; at < len(text); begin = at {
		m := lexeme.FindStringSubmatch(text[at:])
		if m == nil {
			return nil, fmt.Errorf("what is at %.20q?", text[at:])
		}
		at += len(m[0])
		if m[1] != "" {
			fresh = fresh || strings.Contains(m[1], "\n")
			continue
		}
		t := word{text: m[0], begin: begin, end: at, first: fresh}
		t.kind = kind(slices.Index(m[2:], m[0]))
		switch t.text {
		case ")", "}", "]":
			depth--
		}
		t.depth = depth
		switch t.text {
		case "(", "{", "[":
			depth++
		}
		all = append(all, t)
		fresh = false
	}
	if depth != 0 {
		return nil, fmt.Errorf("%d brackets are left open", depth)
	}
	return all, nil
}
