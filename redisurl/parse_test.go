package redisurl_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/redisurl"
)

// options returns the options that a URL must set. With a server name, they use TLS.
func options(o redis.UniversalOptions, serverName ...string) *redis.UniversalOptions {
	if len(serverName) > 0 {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName[0]}
	}
	return &o
}

// Each scheme has its options. What go-redis reads, TestAgreesWithGoRedis compares.
func TestParse(t *testing.T) {
	t.Parallel()
	const sentinels = "redis+sentinel://a,b:1,[::1],[::2]:3"
	for url, want := range map[string]*redis.UniversalOptions{
		"redis://u:p@q@h":              options(redis.UniversalOptions{Addrs: []string{"h:6379"}, Username: "u", Password: "p@q"}),
		"redis://[fe80::1%25eth0]:1":   options(redis.UniversalOptions{Addrs: []string{"[fe80::1%eth0]:1"}}),
		"rediss://redis_1.x-y.org":     options(redis.UniversalOptions{Addrs: []string{"redis_1.x-y.org:6379"}}, "redis_1.x-y.org"),
		sentinels + "?master=m":        options(redis.UniversalOptions{Addrs: []string{"a:26379", "b:1", "[::1]:26379", "[::2]:3"}, MasterName: "m"}),
		sentinels + "/4?master=m":      options(redis.UniversalOptions{Addrs: []string{"a:26379", "b:1", "[::1]:26379", "[::2]:3"}, MasterName: "m", DB: 4}),
		"rediss+sentinel://a?master=m": options(redis.UniversalOptions{Addrs: []string{"a:26379"}, MasterName: "m"}, ""),
		"redis+sentinel://u:p@a?master=m%20n&sentinel_username=s&sentinel_password=%26%2B": options(redis.UniversalOptions{
			Addrs: []string{"a:26379"}, MasterName: "m n", Username: "u", Password: "p", SentinelUsername: "s", SentinelPassword: "&+",
		}),
		"redis+cluster://:p@a,b:1":   options(redis.UniversalOptions{Addrs: []string{"a:6379", "b:1"}, Password: "p", IsClusterMode: true}),
		"redis+cluster://a/0":        options(redis.UniversalOptions{Addrs: []string{"a:6379"}, IsClusterMode: true}),
		"rediss+cluster://a:1,b:2/?": options(redis.UniversalOptions{Addrs: []string{"a:1", "b:2"}, IsClusterMode: true}, ""),
	} {
		got, err := redisurl.Parse(url)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", url, got, err, want)
		}
	}
}

// A URL of one server has the meaning that it has for go-redis.
func TestAgreesWithGoRedis(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis://h", "redis://h:1/", "REDIS://127.0.0.1:1/2", "redis://@h?db=3", "redis://:p@h", "redis://u:p:q@[::1]", "redis://a%40b:%2F%3F%23+@h",
		"unix://u:p@/a%20b/s?db=1", "rediss://[::1]:1", "redis://u:p%40@h:1/2", "rediss://h", "rediss://[::1]", "rediss://h?skip_verify=true", "rediss://h?skip_verify=0",
		"unix:///run/redis.sock", "unix://u:p@/run/redis.sock?db=2&pool_size=3",
		"redis://h?client_name=a&protocol=2&db=5&dial_timeout=1&read_timeout=2s&write_timeout=0&max_retries=-1",
		"redis://h?min_retry_backoff=1ms&max_retry_backoff=-1&pool_size=3&pool_timeout=4s&min_idle_conns=5&max_idle_conns=6",
		"redis://h?max_active_conns=7&conn_max_idle_time=8h&conn_max_lifetime=-9s&read_timeout=&protocol=&client_name=&dial_timeout=",
	} {
		theirs := testenv.Call(redis.ParseURL(text)).Must(t)
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

// An error says what is wrong, and nothing of a user or password.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const sentinel = "redis+sentinel://h?master=m&"
	for url, want := range map[string]string{
		"":                                       "the scheme is missing or unknown",
		"http://u:hunter2@h":                     "the scheme is missing or unknown",
		"redis+unix://u:hunter2@h":               "the scheme is missing or unknown",
		"unix+sentinel://u:hunter2@h":            "the scheme is missing or unknown",
		"redis://u:hunter2/@h":                   "the user or password is not encoded",
		"redis://u:a@b?hunter2@h":                "the user or password is not encoded",
		"redis://u:a@b#hunter2@h":                "the user or password is not encoded",
		"redis://u:%hunter2@h":                   "a % in the user or password is not followed by two hexadecimal digits",
		"redis://hunter2@h":                      "the password of the user is missing",
		"redis://u:hunter2@":                     "a host is missing or not valid",
		"redis+cluster://:hunter2@a,,b":          "a host is missing or not valid",
		"redis+cluster://:hunter2@a,b|c":         "a host is missing or not valid",
		"redis://u:hunter2@::1":                  "a host is missing or not valid",
		"redis://u:hunter2":                      "the URL is not valid",
		"redis://u:hunter2@h:x":                  "the URL is not valid",
		"redis://:hunter2@a,b":                   "the hosts is several",
		"unix://u:hunter2@run/s":                 "the host is present",
		"unix://u:hunter2@":                      "the URL is refused by go-redis (redis: empty unix socket path)",
		"redis://u:hunter2@h/zero":               `the URL is refused by go-redis (redis: invalid database number: "zero")`,
		"redis://u/hunter2":                      "the URL is refused by go-redis; it must be",
		"redis+cluster://:hunter2@h/1":           "the database is not 0",
		"redis+sentinel://:hunter2@h":            "the parameter master is missing",
		"redis://u:hunter2@h?master=m":           "the URL is refused by go-redis (redis: unexpected option: master)",
		"redis://u:hunter2@h?pool_size=x":        `the URL is refused by go-redis (redis: invalid pool_size number`,
		sentinel + "sentinel_password=a&hunter2": "the URL is refused by go-redis; it must be",
	} {
		o, err := redisurl.Parse(url)
		var refused *noonlock.ConfigError
		if o != nil || !errors.As(err, &refused) || !errors.Is(err, noonlock.ErrConfig) || !strings.HasPrefix(err.Error(), "redisurl: "+want) {
			t.Errorf("%q: %v; want %s", url, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%q: %v shows the password", url, err)
		}
	}
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
		o, err := redisurl.Parse("redis+sentinel://u:" + escaped + "@h?master=m&sentinel_password=" + url.QueryEscape(secret))
		if err != nil || o.Password != secret || o.SentinelPassword != secret {
			t.Errorf("%q: %+v, %v", secret, o, err)
		}
	})
}
