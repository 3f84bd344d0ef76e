package lockcoretest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The differences that the package comment lists, on both servers. If a new miniredis
// removes one, this test fails and the comment must be updated.
func TestMiniredisDiffersAsDocumented(t *testing.T) {
	tests := []struct {
		script       string
		mini, actual string // how the answer begins
	}{
		{`return tostring(1763000000000000)`, "1763000000000000", "1.763e+15"},
		{`return string.format('%.0f', 1763000000000000)`, "1763000000000000", "1763000000000000"},
		{`return redis.call('WAIT', 0, 0)`, "0", "ERR This Redis command is not allowed from script"},
		{`redis.call('SET', 'k', 'v') return redis.call('HGET', 'k', 'f')`, "ERR Error compiling script", "WRONGTYPE"},
		{`return bit.band(7, 2)`, "ERR", "2"},
		{`return struct.size('b')`, "ERR", "1"},
		{`return type(cmsgpack)`, "ERR", "table"},
		{
			`redis.call('SET', 'k', 'v', 'PX', '1000000000000000') return redis.call('PTTL', 'k') > 999999999999000 and 'ok' or 'overflow'`,
			"overflow", "ok",
		},
	}
	actual, mini := client(t, &redis.Options{Addr: servers.Redis(t).Addr()}), lockcoretest.NewRedis(t).Client()
	for _, tt := range tests {
		for want, c := range map[*string]*redis.Client{&tt.mini: mini, &tt.actual: actual} {
			v, err := c.Eval(t.Context(), tt.script, nil).Result()
			got := fmt.Sprint(v)
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, *want) {
				t.Errorf("%s answers %q, want %q", tt.script, got, *want)
			}
		}
	}
}
