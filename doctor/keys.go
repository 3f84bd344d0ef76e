package doctor

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const (
	pageSize = 1000   // keys that the server looks at for one SCAN
	maxKeys  = 10_000 // keys under the prefix after which the search ends
	maxShown = 3      // keys in a report
)

// partsOf returns what the packages declare about their keys, <prefix>:{<name>}:<part>, by part.
func partsOf() map[string]lock.KeyPart {
	all := map[string]lock.KeyPart{"record": {Types: []string{"string"}}} // a key of adapters/clientgo, another module
	for _, u := range useNeeds {
		maps.Copy(all, u.needs.Parts)
	}
	return all
}

var keyOfName = regexp.MustCompile(`^\{[^{}]+\}:([a-z]+)(:.+)?$`)

// longerPrefix matches a key, without the prefix, if the key belongs to a longer prefix such as noonlock:payments.
var longerPrefix = regexp.MustCompile(`^[^{}]+:(\{[^{}]+\}:[a-z]+|history$|quorum$)`)

// partOf returns the part of a key without its prefix. ok is false for a key of another program. history and quorum
// are keys of the prefix, and of the keys of a name only tomb has a suffix.
func partOf(parts map[string]lock.KeyPart, key string) (part string, ok bool) {
	if key == "history" || key == "quorum" {
		return key, true
	}
	m := keyOfName.FindStringSubmatch(key)
	if m == nil || (m[2] != "") != (m[1] == "tomb") || m[1] == "quorum" {
		return "", false
	}
	_, ok = parts[m[1]]
	return m[1], ok
}

// A search collects the keys under the prefix.
type search struct {
	*node
	prefix           string
	parts            map[string]lock.KeyPart
	seen             map[string]bool // SCAN may return a key twice
	foreign, endless []string
	versions         map[string]int // number of keys, by part and schema with a space in between
	problem          string         // why types and TTLs are unknown; empty if they are known
}

var globQuote = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// searchKeys searches for keys under the prefix that do not belong there.
func (n *node) searchKeys(ctx context.Context) {
	s := &search{node: n, prefix: n.cfg.Prefix + ":", parts: partsOf(), seen: map[string]bool{}, versions: map[string]int{}}
	cursor, began, limit := "0", time.Now(), ""
	for searched := pageSize; limit == ""; searched += pageSize {
		page, problem := n.ask(ctx, "scan", cursor, "match", globQuote.Replace(s.prefix)+"*", "count", pageSize)
		if problem != "" {
			n.add("keys", Warn, "unknown: %s", problem)
			n.add("schema", Warn, "unknown: %s", problem)
			return
		}
		answer, _ := page.([]any)
		answer = append(answer, nil, nil) // an odd answer may have no elements
		keys, _ := answer[1].([]any)
		s.read(ctx, keys)
		if cursor = wire.Text(answer[0]); cursor == "0" || n.silence != nil {
			break
		}
		const only = "; only about %d keys of the server were searched: "
		switch {
		case len(s.seen) >= maxKeys:
			limit = fmt.Sprintf(only+"they have more than %d keys of the prefix", searched, maxKeys)
		case time.Since(began) > n.cfg.Timeout:
			limit = fmt.Sprintf(only+"the search ended after %s", searched, n.cfg.Timeout)
		}
	}
	s.reportKeys(limit)
	s.reportSchemas()
}

func (s *search) read(ctx context.Context, keys []any) {
	var questions []conn.Command // three for each key in ours
	var ours, parts []string
	for _, k := range keys {
		key := wire.Text(k)
		rest := strings.TrimPrefix(key, s.prefix)
		if s.seen[key] || longerPrefix.MatchString(rest) {
			continue
		}
		s.seen[key] = true
		part, ok := partOf(s.parts, rest)
		if !ok {
			s.foreign = append(s.foreign, key)
			continue
		}
		value := []any{"type", key} // the part has no schema
		switch part {
		case "lock":
			value = []any{"get", key}
		case "job", "leader":
			value = []any{"hget", key, "v"}
		}
		questions = append(questions, conn.Command{Args: []any{"type", key}},
			conn.Command{Args: []any{"pttl", key}}, conn.Command{Args: value})
		ours, parts = append(ours, key), append(parts, part)
	}
	answers := s.askAll(ctx, questions...)
	for i, a := range answers {
		if wire.HasCode(a.Err, "NOPERM") { // all other errors come from keys of an unexpected type
			s.problem = refusal(a.Err, questions[i].Args...)
		}
	}
	for i, key := range ours {
		s.judgeKey(key, parts[i], answers[3*i].Value, answers[3*i+1].Value, answers[3*i+2].Value)
	}
}

// judgeKey collects a foreign or an endless key, and counts its schema. value has the schema, or is nil if unknown.
func (s *search) judgeKey(key, part string, kind, ttl, value any) {
	declared, endless := s.parts[part], ttl == int64(-1)
	known := declared.Schema != "" && value != nil
	schema := wire.Text(value)
	ours := true
	if known && part == "lock" {
		schema, _, _ = strings.Cut(schema, ":")
		ours = strings.HasPrefix(schema, "nl")
	}
	switch {
	case kind == nil, kind == "none": // unknown, or the key has expired
	case !slices.Contains(declared.Types, wire.Text(kind)), !ours && !endless:
		s.foreign = append(s.foreign, key)
	case endless && (!ours || !declared.Endless):
		s.endless = append(s.endless, key)
	}
	if known && ours {
		s.versions[part+" "+schema]++
	}
}

func (s *search) reportKeys(limit string) {
	found, verdict := count(len(s.seen), "key")+" under the prefix", OK
	for _, group := range []struct {
		keys        []string
		description string
	}{{s.foreign, " of other programs: "}, {s.endless, " without a TTL: "}} {
		if len(group.keys) > 0 {
			slices.Sort(group.keys)
			found, verdict = found+"; "+count(len(group.keys), "key")+group.description+listKeys(group.keys), Warn
		}
	}
	if s.problem != "" {
		found, verdict = found+"; their types and TTLs are unknown: "+s.problem, Warn
	}
	if slices.ContainsFunc(s.endless, func(key string) bool { return strings.HasSuffix(key, "}:lock") }) { // a lock without a TTL is never free
		verdict = Fail
	}
	s.add("keys", verdict, "%s%s", found, limit)
}

func listKeys(keys []string) string {
	some := fmt.Sprintf("%q", keys[:min(maxShown, len(keys))])
	some = some[1 : len(some)-1]
	if more := len(keys) - maxShown; more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return some
}

func (s *search) reportSchemas() {
	if s.problem != "" {
		s.add("schema", Warn, "unknown: %s", s.problem)
		return
	}
	verdict, texts := OK, []string{}
	for _, schema := range slices.Sorted(maps.Keys(s.versions)) {
		part, version, _ := strings.Cut(schema, " ")
		if version != s.parts[part].Schema {
			verdict = Warn
		}
		if version == "" {
			version = "without a version"
		}
		texts = append(texts, fmt.Sprintf("%s %s (%d)", part, version, s.versions[schema]))
	}
	if len(texts) == 0 {
		texts = append(texts, "no data yet")
	}
	s.add("schema", verdict, "%s; this version has lock %s, job %s, leader %s",
		strings.Join(texts, ", "), s.parts["lock"].Schema, s.parts["job"].Schema, s.parts["leader"].Schema)
}
