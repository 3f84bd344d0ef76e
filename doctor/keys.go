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

// partOf returns the part of a key after its prefix.
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

// A found key.
type foundKey struct {
	key, part string
	kind      *redis.StatusCmd
	ttl       *redis.DurationCmd
	value     *redis.StringCmd // of a lock
	schema    *redis.StringCmd // of a job or a leader
}

// globbed makes a text match itself in a glob pattern.
var globbed = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// searchKeys looks for keys under the prefix that do not belong there.
func (n *node) searchKeys(ctx context.Context) error {
	prefix := n.e.cfg.Prefix + ":"
	found := map[string]bool{} // SCAN may return a key twice
	cursor, looked, began := uint64(0), 0, time.Now()
	for {
		var keys []string
		err := n.ask(ctx, func(ctx context.Context) (err error) {
			keys, cursor, err = n.rdb.Scan(ctx, cursor, globbed.Replace(prefix)+"*", searched).Result()
			return err
		})
		if isRefusal(err) {
			for _, check := range []string{checkKeys, checkSchema} {
				n.add(check, Warn, "unknown: %s", refusal("scan", err))
			}
			return nil
		}
		if err != nil {
			return err
		}
		for _, key := range keys {
			found[key] = true
		}
		looked += searched
		if cursor == 0 || looked >= n.e.cfg.MaxKeys || len(found) >= mostKeys || time.Since(began) > n.e.cfg.Timeout {
			break
		}
	}
	limit := ""
	if cursor != 0 {
		var why string
		switch {
		case looked >= n.e.cfg.MaxKeys:
			why = fmt.Sprintf("the limit is %d keys", n.e.cfg.MaxKeys)
		case len(found) >= mostKeys:
			why = fmt.Sprintf("they have more than %d keys of the prefix", mostKeys)
		default:
			why = fmt.Sprintf("the search ended after %s", n.e.cfg.Timeout)
		}
		limit = fmt.Sprintf("; only about %d keys of the server were searched: %s", looked, why)
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
	var missing string
	for some := range slices.Chunk(keys, readAtOnce) {
		refused, err := n.readKeys(ctx, some)
		if err != nil {
			return err
		}
		missing = cmp.Or(missing, refused)
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
	return nil
}

// readKeys reads what is needed to judge keys. It says which right is missing.
func (n *node) readKeys(ctx context.Context, keys []*foundKey) (missing string, err error) {
	err = n.ask(ctx, func(ctx context.Context) error {
		pipe := n.rdb.Pipeline()
		for _, k := range keys {
			k.kind, k.ttl = pipe.Type(ctx, k.key), pipe.PTTL(ctx, k.key)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	switch {
	case isRefusal(err):
		return refusal("type +pttl", err), nil
	case err != nil:
		return "", err
	}
	err = n.ask(ctx, func(ctx context.Context) error {
		pipe := n.rdb.Pipeline()
		for _, k := range keys {
			switch kind := k.kind.Val(); {
			case k.part == "lock" && kind == "string":
				k.value = pipe.Get(ctx, k.key)
			case (k.part == "job" || k.part == "leader") && kind == "hash":
				k.schema = pipe.HGet(ctx, k.key, "v")
			}
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return refusal("get +hget", err), nil
	case err != nil && !isRefusal(err):
		return "", err
	}
	return "", nil // a key may have ended or changed meanwhile
}

// judge returns what is wrong with a key, and counts its schema.
func (k *foundKey) judge(of lock.Part, versions map[string]int) string {
	if k.kind == nil || k.kind.Err() != nil || k.kind.Val() == "none" {
		return "" // unknown, or it has ended meanwhile
	}
	if !slices.Contains(of.Types, k.kind.Val()) {
		return "foreign"
	}
	switch {
	case k.value != nil && k.value.Err() == nil:
		schema, _, _ := strings.Cut(k.value.Val(), ":")
		if !strings.HasPrefix(schema, "nl") {
			if k.ttl.Val() == noTTL {
				return "endless"
			}
			return "foreign"
		}
		versions["lock "+schema]++
	case k.schema != nil:
		versions[k.part+" "+k.schema.Val()]++
	}
	if k.ttl.Val() == noTTL && !of.Endless {
		return "endless"
	}
	return ""
}

// noTTL is the answer of PTTL for a key that has none.
const noTTL = -1 * time.Nanosecond

func (n *node) reportKeys(all int, foreign, endless []string, limit, missing string) {
	verdict := OK
	texts := []string{count(all, "key") + " under the prefix"}
	if len(foreign) > 0 {
		verdict = Warn
		texts = append(texts, count(len(foreign), "key")+" of other programs: "+shown(foreign))
	}
	if len(endless) > 0 {
		verdict = Warn
		for _, key := range endless {
			if strings.HasSuffix(key, "}:lock") {
				verdict = Fail // it is never free
			}
		}
		texts = append(texts, count(len(endless), "key")+" without a TTL: "+shown(endless))
	}
	if missing != "" {
		if verdict == OK {
			verdict = Warn
		}
		texts = append(texts, "their types and TTLs are unknown: "+missing)
	}
	n.add(checkKeys, verdict, "%s%s", strings.Join(texts, "; "), limit)
}

// shown returns the names of some keys.
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
