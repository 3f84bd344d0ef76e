package redisurl

import (
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/input"
)

// A parameter is one that may follow the ?. set reports whether its value is valid.
type parameter struct {
	rule string
	set  func(value string) bool
}

// configure sets the parameters. hasDB says that the path contains a database.
func (d deployment) configure(o *redis.UniversalOptions, query string, hasDB bool) error {
	known := d.parameters(o)
	given := map[string]bool{"db": hasDB}
	after := "" // a parameter of the Sentinels, which may be a secret
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		field, shown := "the parameter "+input.Quote(name), input.Quote(value)
		switch {
		case after != "":
			// This may be a part of the secret, which contains an &.
			field, shown = "a parameter after "+after, "invalid"
		case strings.HasPrefix(name, "sentinel_"):
			after = name
		}
		decoded, err := url.PathUnescape(value)
		p, ok := known[name]
		switch {
		case !ok:
			rule := "one of " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			if after != "" && after != name {
				rule += "; an & in a value must be %26"
			}
			return refuse(field, "unknown", rule)
		case given[name]:
			return refuse(field, "given twice", "given once, and a database either as path or as db")
		case strings.Contains(value, "+"):
			return refuse("a character of "+field, "+", "%2B, or %20 for a space")
		case err != nil:
			return refuse("a % in "+field, "not followed by two hexadecimal digits", "%25")
		case decoded != "" && !p.set(decoded):
			return refuse(field, shown, p.rule)
		}
		given[name] = true
	}
	switch {
	case d.sentinel && o.MasterName == "":
		return refuse("the parameter master", "missing", "the name of the primary that the Sentinels watch")
	case o.SentinelUsername != "" && o.SentinelPassword == "":
		return refuse("the parameter sentinel_password", "missing", "given with sentinel_username")
	case d.cluster && o.DB != 0:
		return refuse("the database", strconv.Itoa(o.DB), "0 in a cluster")
	}
	return nil
}

// parameters returns those that the scheme has, by name.
func (d deployment) parameters(o *redis.UniversalOptions) map[string]parameter {
	const (
		numbers = "a whole number from 0 to 1000000"
		spans   = "a duration such as 500ms, a number of seconds, or 0 for no limit"
		waits   = "a duration such as 500ms or a number of seconds, above 0"
	)
	all := map[string]parameter{
		"client_name":        {"printable ASCII without spaces", name(&o.ClientName)},
		"protocol":           {"2 or 3", func(s string) bool { return (s == "2" || s == "3") && whole(&o.Protocol, 2)(s) }},
		"db":                 {databases, whole(&o.DB, 0)},
		"dial_timeout":       {waits, span(&o.DialTimeout, false)},
		"read_timeout":       {spans, span(&o.ReadTimeout, true)},
		"write_timeout":      {spans, span(&o.WriteTimeout, true)},
		"max_retries":        {"a whole number from -1 (none) to 1000000", whole(&o.MaxRetries, -1)},
		"min_retry_backoff":  {spans, span(&o.MinRetryBackoff, true)},
		"max_retry_backoff":  {spans, span(&o.MaxRetryBackoff, true)},
		"pool_size":          {numbers, whole(&o.PoolSize, 0)},
		"pool_timeout":       {waits, span(&o.PoolTimeout, false)},
		"min_idle_conns":     {numbers, whole(&o.MinIdleConns, 0)},
		"max_idle_conns":     {numbers, whole(&o.MaxIdleConns, 0)},
		"max_active_conns":   {numbers, whole(&o.MaxActiveConns, 0)},
		"conn_max_idle_time": {spans, span(&o.ConnMaxIdleTime, true)},
		"conn_max_lifetime":  {spans, span(&o.ConnMaxLifetime, true)},
	}
	if d.sentinel {
		all["master"] = parameter{"the name of the primary that the Sentinels watch", text(&o.MasterName)}
		all["sentinel_username"] = parameter{"a user of the Sentinels", text(&o.SentinelUsername)}
		all["sentinel_password"] = parameter{"a password of the Sentinels", text(&o.SentinelPassword)}
	}
	if d.tls {
		all["skip_verify"] = parameter{"true or false", flag(&o.TLSConfig.InsecureSkipVerify)}
	}
	return all
}

func text(to *string) func(string) bool {
	return func(s string) bool {
		*to = s
		return true
	}
}

// name accepts what CLIENT SETNAME does.
func name(to *string) func(string) bool {
	return func(s string) bool {
		*to = s
		return !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
	}
}

// whole accepts numbers up to 1000000. go-redis panics at sizes of a pool that do not fit
// into 32 bits.
func whole(to *int, least int) func(string) bool {
	const most = 1_000_000
	return func(s string) bool {
		n, err := strconv.Atoi(s)
		*to = n
		return err == nil && least <= n && n <= most
	}
}

// span accepts durations, and numbers of seconds. mayBeOff says that 0 and less is no limit,
// for which go-redis has the value -1. Other fields do not have it: a dial would fail at
// once.
func span(to *time.Duration, mayBeOff bool) func(string) bool {
	return func(s string) bool {
		d, err := time.ParseDuration(s)
		if n, wrong := strconv.ParseInt(s, 10, 64); wrong == nil && n <= math.MaxInt64/int64(time.Second) {
			d, err = time.Duration(max(n, 0))*time.Second, nil
		}
		if d <= 0 {
			d = -1
		}
		*to = d
		return err == nil && (d > 0 || mayBeOff)
	}
}

func flag(to *bool) func(string) bool {
	return func(s string) bool {
		*to = s == "true" || s == "1"
		return *to || s == "false" || s == "0"
	}
}
