package redisurl_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/redisurl"
)

// options returns the options that a URL must set. With a server name, they use TLS.
func options(o redis.UniversalOptions, serverName ...string) *redis.UniversalOptions {
	if len(serverName) > 0 {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName[0]}
	}
	return &o
}

func TestParse(t *testing.T) {
	t.Parallel()
	const sentinels = "redis+sentinel://a,b:1,[::1],[::2]:3"
	for url, want := range map[string]*redis.UniversalOptions{
		"redis://h":                    options(redis.UniversalOptions{Addrs: []string{"h:6379"}}),
		"redis://h:1/":                 options(redis.UniversalOptions{Addrs: []string{"h:1"}}),
		"REDIS://127.0.0.1:1/2":        options(redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, DB: 2}),
		"redis://@h?db=3":              options(redis.UniversalOptions{Addrs: []string{"h:6379"}, DB: 3}),
		"redis://:p@h":                 options(redis.UniversalOptions{Addrs: []string{"h:6379"}, Password: "p"}),
		"redis://u:p:q@[::1]":          options(redis.UniversalOptions{Addrs: []string{"[::1]:6379"}, Username: "u", Password: "p:q"}),
		"redis://u:p@q@h":              options(redis.UniversalOptions{Addrs: []string{"h:6379"}, Username: "u", Password: "p@q"}),
		"redis://a%40b:%2F%3F%23+@h":   options(redis.UniversalOptions{Addrs: []string{"h:6379"}, Username: "a@b", Password: "/?#+"}),
		"redis://[fe80::1%25eth0]:1":   options(redis.UniversalOptions{Addrs: []string{"[fe80::1%eth0]:1"}}),
		"rediss://redis_1.x-y.org":     options(redis.UniversalOptions{Addrs: []string{"redis_1.x-y.org:6379"}}, "redis_1.x-y.org"),
		"rediss://[::1]:1":             options(redis.UniversalOptions{Addrs: []string{"[::1]:1"}}, "::1"),
		"unix:///run/redis.sock":       options(redis.UniversalOptions{Addrs: []string{"/run/redis.sock"}}),
		"unix://u:p@/a%20b/s?db=1":     options(redis.UniversalOptions{Addrs: []string{"/a b/s"}, Username: "u", Password: "p", DB: 1}),
		sentinels + "?master=m":        options(redis.UniversalOptions{Addrs: []string{"a:26379", "b:1", "[::1]:26379", "[::2]:3"}, MasterName: "m"}),
		sentinels + "/4?master=m":      options(redis.UniversalOptions{Addrs: []string{"a:26379", "b:1", "[::1]:26379", "[::2]:3"}, MasterName: "m", DB: 4}),
		"rediss+sentinel://a?master=m": options(redis.UniversalOptions{Addrs: []string{"a:26379"}, MasterName: "m"}, ""),
		"redis+sentinel://u:p@a?master=m%20n&sentinel_username=s&sentinel_password=%26%2B": options(redis.UniversalOptions{
			Addrs: []string{"a:26379"}, MasterName: "m n", Username: "u", Password: "p", SentinelUsername: "s", SentinelPassword: "&+",
		}),
		"redis+cluster://:p@a,b:1":   options(redis.UniversalOptions{Addrs: []string{"a:6379", "b:1"}, Password: "p", IsClusterMode: true}),
		"redis+cluster://a/0?db=":    nil, // twice
		"redis+cluster://a/0":        options(redis.UniversalOptions{Addrs: []string{"a:6379"}, IsClusterMode: true}),
		"rediss+cluster://a:1,b:2/?": options(redis.UniversalOptions{Addrs: []string{"a:1", "b:2"}, IsClusterMode: true}, ""),
	} {
		got, err := redisurl.Parse(url)
		if want == nil && errors.Is(err, redisurl.ErrConfig) {
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", url, got, err, want)
		}
	}
}

// A URL of one server has the meaning that it has for go-redis.
func TestAgreesWithGoRedis(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis://h", "redis://u:p%40@h:1/2", "rediss://h", "rediss://[::1]", "rediss://h?skip_verify=true", "rediss://h?skip_verify=0",
		"unix:///run/redis.sock", "unix://u:p@/run/redis.sock?db=2&pool_size=3",
		"redis://h?client_name=a&protocol=2&db=5&dial_timeout=1&read_timeout=2s&write_timeout=0&max_retries=-1",
		"redis://h?min_retry_backoff=1ms&max_retry_backoff=-1&pool_size=3&pool_timeout=4s&min_idle_conns=5&max_idle_conns=6",
		"redis://h?max_active_conns=7&conn_max_idle_time=8h&conn_max_lifetime=-9s&read_timeout=&protocol=&client_name=&dial_timeout=",
	} {
		theirs, err := redis.ParseURL(text)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := redisurl.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		simple := ours.Simple()
		if simple.Network = theirs.Network; !reflect.DeepEqual(simple, theirs) { // go-redis finds it by the address
			t.Errorf("%s: %+v, but go-redis has %+v", text, simple, theirs)
		}
	}
}

// The options make the client that the scheme names.
func TestSchemeDecidesClient(t *testing.T) {
	t.Parallel()
	for url, cluster := range map[string]bool{
		"redis://h": false, "unix:///s": false, "redis+sentinel://a,b?master=m": false, "redis+cluster://a": true, "redis+cluster://a,b": true,
	} {
		o, err := redisurl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewUniversalClient(o)
		if _, is := rdb.(*redis.ClusterClient); is != cluster {
			t.Errorf("%s makes a %T", url, rdb)
		}
		rdb.Close()
	}
}

// An error names the part, its value and the rule, but nothing of a user or password.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const (
		schemes  = "the scheme is missing or unknown; it must be redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://"
		rawSign  = "a character before the last @ is a / ? or #; it must be percent-encoded in a user or password (%2F, %3F, %23); an @ after the hosts must be %40"
		hostRule = "; it must be a name, an IPv4 address, or an IPv6 address in brackets"
		portRule = "; it must be a number from 1 to 65535"
		spans    = "; it must be a duration such as 500ms, a number of seconds, or 0 for no limit"
		waits    = "; it must be a duration such as 500ms or a number of seconds, above 0"
		whole    = "; it must be a whole number from 0 to 1000000"
		once     = "; it must be given once, and a database either as path or as db"
		of       = "redis+sentinel://h?master=m&"
	)
	for _, test := range []struct{ url, want string }{
		{"", schemes},
		{"hunter2", schemes},
		{"http://u:hunter2@h", schemes},
		{"redis:/u:hunter2@h", schemes},
		{"sentinel+redis://u:hunter2@h", schemes},
		{"redis+unix://u:hunter2@h", schemes},
		{"redis://u:hunter2@h\n", "the first or last character is a space or line break; it must be removed"},
		{"redis://u:hun ter2@h", "a character is a space or control character; it must be percent-encoded"},
		{"redis://u:hunter2@h\x00", "a character is a space or control character; it must be percent-encoded"},

		{"redis://u:/hunter2@h", rawSign},
		{"redis://u:hunter2/@h", rawSign},
		{"redis://u:a@b?hunter2@h", rawSign},
		{"redis://u:a@b#hunter2@h", rawSign},
		{of + "sentinel_password=a@hunter2", rawSign},
		{"redis://u:p@h#hunter2", "a character is #; it must be %23"},
		{of + "sentinel_password=a#hunter2", "a character is #; it must be %23"},
		{"redis://u:%hunter2@h", "a % in the user or password is not followed by two hexadecimal digits; it must be %25"},
		{"redis://hunter2@h", "the password of the user is missing; it must be user:password@, or :password@ for the user default"},

		{"redis://", "the host is missing" + hostRule},
		{"redis://u:hunter2@", "the host is missing" + hostRule},
		{"redis://:1", "the host is missing" + hostRule},
		{"redis+cluster://a,,b", "host 2 is missing" + hostRule},
		{"redis://u:hunter2@a|b", `the host is "a|b"` + hostRule},
		{"redis://u:hunter2@::1", `the host is "::1"` + hostRule},
		{"redis://u:hunter2@[::1", `the host is "[::1"` + hostRule},
		{"redis://u:hunter2@[::1]x", `the host is "[::1]x"` + hostRule},
		{"redis://u:hunter2@[1.2.3.4]", `the host is "[1.2.3.4]"` + hostRule},
		{"redis://u:hunter2@[h]", `the host is "[h]"` + hostRule},
		{"redis://[hunter2]", "the host is invalid" + hostRule},
		{"redis://u:p:hunter2", "the host is invalid" + hostRule},
		{"redis://u:hunter2", "the port is invalid" + portRule},
		{"redis://h:99999", `the port is "99999"` + portRule},
		{"redis://h:", `the port is ""` + portRule},
		{"redis://h:-1", `the port is "-1"` + portRule},
		{"redis://u:hunter2@h:x", `the port is "x"` + portRule},
		{"redis+cluster://a:1,b:0", `the port of host 2 is "0"` + portRule},
		{"redis+sentinel://u:hunter2@a,[::1]:x?master=m", `the port of host 2 is "x"` + portRule},
		{"redis://a,b", "the number of hosts is 2; it must be 1, unless the scheme is that of Sentinel or of a cluster"},
		{"unix://u:hunter2@run/s", `the host is "run"; it must be absent, as in unix:///run/redis.sock; the path of a socket begins with /`},
		{"unix://hunter2/s", "the host is invalid; it must be absent, as in unix:///run/redis.sock; the path of a socket begins with /"},
		{"unix://", `the path is ""; it must be that of a socket, as in unix:///run/redis.sock`},
		{"unix:///", "the path is invalid; it must be that of a socket, as in unix:///run/redis.sock"},

		{"redis://u:hunter2@h/zero", `the database is "zero"; it must be a number from 0`},
		{"redis://u/hunter2", "the database is invalid; it must be a number from 0"},
		{"redis://h/-1", `the database is "-1"; it must be a number from 0`},
		{"redis://u:hunter2@h/0/1", `the database is "0/1"; it must be a number from 0`},
		{"redis://h?db=-1", `the parameter "db" is "-1"; it must be a number from 0`},
		{"redis://h/1?db=1", `the parameter "db" is given twice` + once},
		{"redis+sentinel://u:hunter2@h/m", `the database is "m"; it must be a number from 0; the name of the primary is the parameter master`},
		{"redis+cluster://h/1", "the database is 1; it must be 0 in a cluster"},
		{"redis+cluster://h?db=1", "the database is 1; it must be 0 in a cluster"},

		{"redis+sentinel://h", "the parameter master is missing; it must be the name of the primary that the Sentinels watch"},
		{"redis+sentinel://h?master=", "the parameter master is missing; it must be the name of the primary that the Sentinels watch"},
		{"redis://h?master=m", `the parameter "master" is unknown; it must be one of client_name, conn_max_idle_time, `},
		{"redis+cluster://h?sentinel_password=hunter2", `the parameter "sentinel_password" is unknown; it must be one of`},
		{"redis://h?skip_verify=true", `the parameter "skip_verify" is unknown; it must be one of`},
		{"redis://h?sslmode=no", `the parameter "sslmode" is unknown; it must be one of client_name, `},
		{of + "sslmode=no", `the parameter "sslmode" is unknown; it must be one of client_name, `},
		{of + "sentinel_password=a&hunter2", "a parameter after sentinel_password is unknown; it must be one of client_name, "},
		{of + "sentinel_password=a&db=hunter2", "a parameter after sentinel_password is invalid; it must be a number from 0"},
		{of + "sentinel_username=hunter2", "the parameter sentinel_password is missing; it must be given with sentinel_username"},
		{of + "sentinel_password=hun+ter2", `a character of the parameter "sentinel_password" is +; it must be %2B, or %20 for a space`},
		{of + "sentinel_password=%hunter2", `a % in the parameter "sentinel_password" is not followed by two hexadecimal digits; it must be %25`},
		{"redis://h?pool_size=1&pool_size=1", `the parameter "pool_size" is given twice` + once},
		{"redis://h?pool_size=-1", `the parameter "pool_size" is "-1"` + whole},
		{"redis://h?pool_size=1000001", `the parameter "pool_size" is "1000001"` + whole},
		{"redis://h?pool_size=1.5", `the parameter "pool_size" is "1.5"` + whole},
		{"redis://h?max_retries=-2", `the parameter "max_retries" is "-2"; it must be a whole number from -1 (none) to 1000000`},
		{"redis://h?protocol=4", `the parameter "protocol" is "4"; it must be 2 or 3`},
		{"redis://h?client_name=a%20b", `the parameter "client_name" is "a%20b"; it must be printable ASCII without spaces`},
		{"redis://h?read_timeout=soon", `the parameter "read_timeout" is "soon"` + spans},
		{"redis://h?read_timeout=9223372037", `the parameter "read_timeout" is "9223372037"` + spans},
		{"redis://h?dial_timeout=0", `the parameter "dial_timeout" is "0"` + waits},
		{"redis://h?pool_timeout=-1s", `the parameter "pool_timeout" is "-1s"` + waits},
		{"rediss://h?skip_verify=yes", `the parameter "skip_verify" is "yes"; it must be true or false`},
	} {
		o, err := redisurl.Parse(test.url)
		var refused *redisurl.ConfigError
		if o != nil || !errors.As(err, &refused) || !errors.Is(err, redisurl.ErrConfig) || !strings.HasPrefix(err.Error(), "redisurl: "+test.want) {
			t.Errorf("%q: %v; want %s", test.url, err, test.want)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%q: %v shows the password", test.url, err)
		}
	}
}

// No text causes a panic, neither here nor in the client.
func FuzzParse(f *testing.F) {
	for _, url := range []string{
		"redis://u:p@h:1/2?pool_size=3", "unix://:p@/s?db=1", "rediss+sentinel://[::1]:1,b?master=m&sentinel_password=p&min_idle_conns=1",
		"redis+cluster://a,b:2?read_timeout=1&max_active_conns=9", "rediss://h?skip_verify=1",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		o, err := redisurl.Parse(url)
		switch {
		case err != nil && (o != nil || !errors.Is(err, redisurl.ErrConfig)):
			t.Fatalf("%v, %v", o, err)
		case err != nil:
			return
		case len(o.Addrs) == 0 || o.MasterName != "" && o.IsClusterMode:
			t.Fatalf("%+v", o)
		}
		o.MinIdleConns = 0 // these would dial
		redis.NewUniversalClient(o).Close()
	})
}

// No part of a password appears in an error, however the password is written, and wherever
// the URL is invalid. An encoded password is returned as it is.
func FuzzSecrets(f *testing.F) {
	for _, around := range []string{"", "/", "?", "#", "@", "%", ":", "&", "&db=", "+", ",", "@h:1/", "@h?db=", " "} {
		f.Add(around, "", "h:1/x")
		f.Add("", around, "h:x?y=z")
		f.Add(around, around, "h:1?master=m")
	}
	const marker = "hunter2"
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		if strings.Contains(rest, "hunter") || strings.Contains(rest, "@") {
			return
		}
		secret := before + marker + after
		escaped := url.PathEscape(secret)
		for _, text := range []string{
			"redis://u:" + secret + "@" + rest,
			"redis://" + secret + ":p@" + rest,
			"unix://u:" + secret + "@" + rest,
			"redis+cluster://:" + secret + "@a," + rest,
			"redis+sentinel://u:" + secret + "@" + rest + "?master=m",
			"redis+sentinel://u:p@a/0?sentinel_password=" + secret + "&" + rest,
			"redis+sentinel://a?sentinel_username=" + secret + "&" + rest,
			"redis://u:" + escaped + "@" + rest,
			"redis+sentinel://u:p@a/0?sentinel_password=" + url.QueryEscape(secret) + "&" + rest,
		} {
			if _, err := redisurl.Parse(text); err != nil && strings.Contains(err.Error(), marker) {
				t.Errorf("%q: %v", text, err)
			}
		}
		o, err := redisurl.Parse("redis+sentinel://u:" + escaped + "@h?master=m&sentinel_password=" + strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"))
		if err != nil || o.Password != secret || o.SentinelPassword != secret {
			t.Errorf("%q: %+v, %v", secret, o, err)
		}
	})
}

// A client of a socket dials it.
func TestDialsSockets(t *testing.T) {
	t.Parallel()
	o, err := redisurl.Parse("unix:///no/such/socket")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.MaxRetries, o.DialerRetries = -1, 1
	rdb := redis.NewUniversalClient(o)
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "dial unix /no/such/socket") {
		t.Error(err)
	}
}
