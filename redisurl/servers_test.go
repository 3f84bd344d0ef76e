package redisurl_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

// A lock is acquired through the client of each scheme, on servers with passwords. With TLS,
// each host proves its own address, also those that a Sentinel or a node names.
func TestSchemesReachTheirServers(t *testing.T) {
	t.Parallel()
	own := servers.SelfSigned(t)
	conf := own.RedisConf("tls-auth-clients no", "tls-replication yes")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	plain := servers.Redis(t, append([]string{"requirepass a&b", "unixsocket " + socket}, conf...)...)
	secure := plain.SecureAddr()

	watcher := servers.Sentinel(t, "noon", plain.Addr(), 1, "sentinel auth-pass noon a&b", "user watcher on >c+d ~* &* +@all", "user default off")
	secureWatcher := servers.Sentinel(t, "secure", secure, 1, append([]string{"sentinel auth-pass secure a&b", "requirepass c+d"}, conf...)...)

	nodes := servers.Cluster(t, 3, 0)
	secureNodes := servers.Cluster(t, 1, 0, append([]string{"tls-cluster yes"}, conf...)...)

	const password = ":a%26b@"
	for _, url := range []string{
		"redis://" + password + plain.Addr() + "/2",
		"rediss://" + password + secure,
		"unix://" + password + socket + "?db=3",
		"redis+sentinel://" + password + "127.0.0.1:1," + watcher.Addr() + "/4?master=noon&sentinel_username=watcher&sentinel_password=c%2Bd",
		"rediss+sentinel://" + password + secureWatcher.SecureAddr() + "?master=secure&sentinel_password=c%2Bd",
		"redis+cluster://127.0.0.1:1," + nodes.Primaries[1].Addr(),
		"rediss+cluster://" + secureNodes.Primaries[0].SecureAddr(),
	} {
		t.Run(strings.SplitN(url, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			o := testenv.Call(redisurl.Parse(url)).Must(t)
			if o.TLSConfig != nil {
				o.TLSConfig.RootCAs = own.Pool
			}
			client := testenv.Call(lockcore.NewFromOptions(o, lockcore.Config{})).Must(t)
			defer client.Close(context.WithoutCancel(ctx))
			for _, name := range []string{"a", "b", "c", "d"} { // of several slots
				err := client.Do(ctx, name, lockcore.LeaseConfig{}, func(context.Context) error { return nil })
				testenv.Must(t, err)
			}
		})
	}
}
