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
	searched  = 1000   // keys that the server looks at for one request
	mostKeys  = 10_000 // of the prefix, that are read
	mostShown = 3      // names of keys in a report
)

// partsOf returns the kinds of keys, <prefix>:{<name>}:<part>, as the rooms declare them.
func partsOf() map[string]lock.Part {
	all := map[string]lock.Part{"record": {Types: []string{"string"}}} // of adapters/clientgo, another module
	for _, u := range uses {
		maps.Copy(all, u.needs.Parts)
	}
	return all
}

var keyOfName = regexp.MustCompile(`^\{[^{}]+\}:([a-z]+)(:.+)?$`)

// longer matches what follows the prefix in a key of a longer prefix, such as noonlock:payments.
var longer = regexp.MustCompile(`^[^{}]+:(\{[^{}]+\}:[a-z]+|history$|quorum$)`)

func partOf(parts map[string]lock.Part, rest string) (name string, ok bool) {
	if rest == "history" || rest == "quorum" {
		return rest, true
	}
	m := keyOfName.FindStringSubmatch(rest)
	if m == nil || (m[2] != "") != (m[1] == "tomb") || m[1] == "quorum" {
		return "", false
	}
	_, ok = parts[m[1]]
	return m[1], ok
}

// A search is what is known of the keys under the prefix.
type search struct {
	*node
	prefix           string
	parts            map[string]lock.Part
	seen             map[string]bool // SCAN may return a key twice
	foreign, endless []string
	versions         map[string]int // by kind of key and schema
	missing          string         // why types and TTLs are unknown
}

// globbed makes a text match itself in a glob pattern.
var globbed = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// searchKeys looks for keys under the prefix that do not belong there.
func (n *node) searchKeys(ctx context.Context) {
	s := &search{node: n, prefix: n.e.cfg.Prefix + ":", parts: partsOf(), seen: map[string]bool{}, versions: map[string]int{}}
	cursor, began, limit := "0", time.Now(), ""
	for looked := searched; limit == ""; looked += searched {
		page, missing := n.ask(ctx, "scan", cursor, "match", globbed.Replace(s.prefix)+"*", "count", searched)
		if missing != "" {
			n.add("keys", Warn, "unknown: %s", missing)
			n.add("schema", Warn, "unknown: %s", missing)
			return
		}
		answer, _ := page.([]any)
		answer = append(answer, nil, nil)
		keys, _ := answer[1].([]any)
		s.read(ctx, keys)
		if cursor = wire.Text(answer[0]); cursor == "0" || n.silence != nil {
			break
		}
		const only = "; only about %d keys of the server were searched: "
		switch {
		case len(s.seen) >= mostKeys:
			limit = fmt.Sprintf(only+"they have more than %d keys of the prefix", looked, mostKeys)
		case time.Since(began) > n.e.cfg.Timeout:
			limit = fmt.Sprintf(only+"the search ended after %s", looked, n.e.cfg.Timeout)
		}
	}
	s.reportKeys(limit)
	s.reportSchemas()
}

// read reads what is needed to judge keys, and judges them.
func (s *search) read(ctx context.Context, keys []any) {
	var questions []conn.Command // three of each key in known
	var known, parts []string
	for _, k := range keys {
		key := wire.Text(k)
		rest := strings.TrimPrefix(key, s.prefix)
		if s.seen[key] || longer.MatchString(rest) {
			continue
		}
		s.seen[key] = true
		part, ok := partOf(s.parts, rest)
		if !ok {
			s.foreign = append(s.foreign, key)
			continue
		}
		value := []any{"type", key} // has no schema
		switch part {
		case "lock":
			value = []any{"get", key}
		case "job", "leader":
			value = []any{"hget", key, "v"}
		}
		questions = append(questions, conn.Command{Args: []any{"type", key}},
			conn.Command{Args: []any{"pttl", key}}, conn.Command{Args: value})
		known, parts = append(known, key), append(parts, part)
	}
	answers := s.askAll(ctx, questions...)
	for i, a := range answers { // another error is of a key that is of another type
		if wire.HasCode(a.Err, "NOPERM") {
			s.missing = refusal(a.Err, questions[i].Args...)
		}
	}
	for i, key := range known {
		s.judgeKey(key, parts[i], answers[3*i].Value, answers[3*i+1].Value, answers[3*i+2].Value)
	}
}

// judgeKey finds out what is wrong with a key, and counts its schema, which is in value unless that is nil.
func (s *search) judgeKey(key, part string, kind, ttl, value any) {
	of, endless := s.parts[part], ttl == int64(-1)
	known := of.Schema != "" && value != nil
	schema := wire.Text(value)
	ours := true
	if known && part == "lock" {
		schema, _, _ = strings.Cut(schema, ":")
		ours = strings.HasPrefix(schema, "nl")
	}
	switch {
	case kind == nil, kind == "none": // unknown, or it has ended meanwhile
	case !slices.Contains(of.Types, wire.Text(kind)), !ours && !endless:
		s.foreign = append(s.foreign, key)
	case endless && (!ours || !of.Endless):
		s.endless = append(s.endless, key)
	}
	if known && ours {
		s.versions[part+" "+schema]++
	}
}

func (s *search) reportKeys(limit string) {
	found, verdict := count(len(s.seen), "key")+" under the prefix", OK
	for _, of := range []struct {
		keys []string
		what string
	}{{s.foreign, " of other programs: "}, {s.endless, " without a TTL: "}} {
		if len(of.keys) > 0 {
			slices.Sort(of.keys)
			found, verdict = found+"; "+count(len(of.keys), "key")+of.what+shown(of.keys), Warn
		}
	}
	if s.missing != "" {
		found, verdict = found+"; their types and TTLs are unknown: "+s.missing, Warn
	}
	if slices.ContainsFunc(s.endless, func(key string) bool { return strings.HasSuffix(key, "}:lock") }) { // it is never free
		verdict = Fail
	}
	s.add("keys", verdict, "%s%s", found, limit)
}

func shown(keys []string) string {
	some := fmt.Sprintf("%q", keys[:min(mostShown, len(keys))])
	some = some[1 : len(some)-1]
	if more := len(keys) - mostShown; more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return some
}

func (s *search) reportSchemas() {
	if s.missing != "" {
		s.add("schema", Warn, "unknown: %s", s.missing)
		return
	}
	verdict, texts := OK, []string{}
	for _, schema := range slices.Sorted(maps.Keys(s.versions)) {
		of, version, _ := strings.Cut(schema, " ")
		if version != s.parts[of].Schema {
			verdict = Warn
		}
		if version == "" {
			version = "without a version"
		}
		texts = append(texts, fmt.Sprintf("%s %s (%d)", of, version, s.versions[schema]))
	}
	if len(texts) == 0 {
		texts = append(texts, "no data yet")
	}
	s.add("schema", verdict, "%s; this version has lock %s, job %s, leader %s",
		strings.Join(texts, ", "), s.parts["lock"].Schema, s.parts["job"].Schema, s.parts["leader"].Schema)
}
