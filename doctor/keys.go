package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
)

const (
	searched   = 1000   // keys that the server looks at for one request
	mostKeys   = 10_000 // of the prefix, that are read
	readAtOnce = 500    // keys that are read in one pipeline
	mostShown  = 3      // names of keys in a report
)

// partsOf returns the kinds of keys, <prefix>:{<name>}:<part>, as the rooms declare them.
func partsOf() map[string]lock.Part {
	all := map[string]lock.Part{"record": {Types: []string{"string"}}} // of adapters/clientgo, another module
	for _, use := range Uses() {
		of, _ := needs(use) // each of Uses has a room
		maps.Copy(all, of.Parts)
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

// A foundKey is a key under the prefix, with what is known of it.
type foundKey struct {
	key, part string
	kind      *redis.StatusCmd
	ttl       *redis.DurationCmd
	value     *redis.StringCmd // of a lock, or the schema of a job or a leader
}

// globbed makes a text match itself in a glob pattern.
var globbed = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// searchKeys looks for keys under the prefix that do not belong there.
func (n *node) searchKeys(ctx context.Context) {
	prefix := n.e.cfg.Prefix + ":"
	found := map[string]bool{} // SCAN may return a key twice
	limit := ""
	cursor, began := uint64(0), time.Now()
	for looked := searched; ; looked += searched {
		var keys []string
		missing := n.ask(ctx, "scan", func(ctx context.Context) (err error) {
			keys, cursor, err = n.rdb.Scan(ctx, cursor, globbed.Replace(prefix)+"*", searched).Result()
			return err
		})
		if missing != "" {
			n.add(checkKeys, Warn, "unknown: %s", missing)
			n.add(checkSchema, Warn, "unknown: %s", missing)
			return
		}
		for _, key := range keys {
			if !longer.MatchString(strings.TrimPrefix(key, prefix)) {
				found[key] = true
			}
		}
		switch {
		case cursor == 0:
		case len(found) >= mostKeys:
			limit = fmt.Sprintf("they have more than %d keys of the prefix", mostKeys)
		case time.Since(began) > n.e.cfg.Timeout:
			limit = fmt.Sprintf("the search ended after %s", n.e.cfg.Timeout)
		default:
			continue
		}
		if limit != "" {
			limit = fmt.Sprintf("; only about %d keys of the server were searched: %s", looked, limit)
		}
		break
	}
	parts := partsOf()
	var keys []*foundKey
	var foreign, endless []string
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if name, ok := partOf(parts, strings.TrimPrefix(key, prefix)); ok {
			keys = append(keys, &foundKey{key: key, part: name})
		} else {
			foreign = append(foreign, key)
		}
	}
	missing := ""
	for some := range slices.Chunk(keys, readAtOnce) {
		if missing = cmp.Or(missing, n.readKeys(ctx, some)); n.silence != nil {
			return
		}
	}
	versions := map[string]int{}
	for _, k := range keys {
		switch k.judge(parts[k.part], versions) {
		case "foreign":
			foreign = append(foreign, k.key)
		case "endless":
			endless = append(endless, k.key)
		}
	}
	n.reportKeys(len(found), foreign, endless, limit, missing)
	n.reportSchemas(parts, versions, missing)
}

// readKeys reads what is needed to judge keys. It says which right is missing.
func (n *node) readKeys(ctx context.Context, keys []*foundKey) (missing string) {
	refused := ""
	missing = n.ask(ctx, "", func(ctx context.Context) error {
		pipe := n.rdb.Pipeline()
		for _, k := range keys {
			k.kind, k.ttl = pipe.Type(ctx, k.key), pipe.PTTL(ctx, k.key)
			switch k.part {
			case "lock":
				k.value = pipe.Get(ctx, k.key)
			case "job", "leader":
				k.value = pipe.HGet(ctx, k.key, "v")
			}
		}
		answers, err := pipe.Exec(ctx)
		for _, a := range answers { // another error is of a key that has ended, or is of another type
			if redis.HasErrorPrefix(a.Err(), "NOPERM") {
				refused = refusal(a.Name(), a.Err())
			}
		}
		if isRefusal(err) {
			return nil
		}
		return err
	})
	return cmp.Or(missing, refused)
}

// judge returns what is wrong with a key, and counts its schema.
func (k *foundKey) judge(of lock.Part, versions map[string]int) string {
	kind, endless := k.kind.Val(), k.ttl.Val() == noTTL
	switch {
	case kind == "", kind == "none": // unknown, or it has ended meanwhile
		return ""
	case !slices.Contains(of.Types, kind):
		return "foreign"
	case k.value != nil && k.value.Err() == nil:
		schema := k.value.Val()
		if k.part == "lock" && kind == "string" {
			if schema, _, _ = strings.Cut(schema, ":"); !strings.HasPrefix(schema, "nl") && endless {
				return "endless"
			} else if !strings.HasPrefix(schema, "nl") {
				return "foreign"
			}
		}
		versions[k.part+" "+schema]++
	}
	if endless && !of.Endless {
		return "endless"
	}
	return ""
}

// noTTL is the answer of PTTL for a key that has none.
const noTTL = -1 * time.Nanosecond

func (n *node) reportKeys(all int, foreign, endless []string, limit, missing string) {
	texts := []string{count(all, "key") + " under the prefix"}
	if len(foreign) > 0 {
		texts = append(texts, count(len(foreign), "key")+" of other programs: "+shown(foreign))
	}
	if len(endless) > 0 {
		texts = append(texts, count(len(endless), "key")+" without a TTL: "+shown(endless))
	}
	if missing != "" {
		texts = append(texts, "their types and TTLs are unknown: "+missing)
	}
	found := strings.Join(texts, "; ") + limit
	isLock := func(key string) bool { return strings.HasSuffix(key, "}:lock") }
	n.first(checkKeys,
		when(slices.ContainsFunc(endless, isLock), Fail, "%s", found), // it is never free
		when(len(texts) > 1, Warn, "%s", found),
		when(true, OK, "%s", found))
}

func shown(keys []string) string {
	var some []string
	for _, key := range keys[:min(mostShown, len(keys))] {
		some = append(some, fmt.Sprintf("%q", key))
	}
	if more := len(keys) - len(some); more > 0 {
		some = append(some, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(some, " ")
}

func (n *node) reportSchemas(parts map[string]lock.Part, versions map[string]int, missing string) {
	if missing != "" {
		n.add(checkSchema, Warn, "unknown: %s", missing)
		return
	}
	verdict, texts := OK, []string{}
	for _, schema := range slices.Sorted(maps.Keys(versions)) {
		of, version, _ := strings.Cut(schema, " ")
		if version != parts[of].Schema {
			verdict = Warn
		}
		if version == "" {
			version = "without a version"
		}
		texts = append(texts, fmt.Sprintf("%s %s (%d)", of, version, versions[schema]))
	}
	if len(texts) == 0 {
		texts = append(texts, "no data yet")
	}
	n.add(checkSchema, verdict, "%s; this version has lock %s, job %s, leader %s", strings.Join(texts, ", "), parts["lock"].Schema, parts["job"].Schema, parts["leader"].Schema)
}
