//go:build kube

package kube

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

// lent makes a port of this machine's loopback interface available to pods, and returns its address.
func lent(t *testing.T, port int) (host string, lentPort int) {
	t.Helper()
	host = os.Getenv("KUBE_HOST_ADDRESS")
	if host == "" {
		t.Skip("KUBE_HOST_ADDRESS is not set; it must be an address of this machine that pods reach, where the databases of this test listen")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					return
				}
				go func() {
					defer server.Close()
					_, _ = io.Copy(server, client) // ends with either connection
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return host, listener.Addr().(*net.TCPAddr).Port
}

const password = "a/b?c#d@e%f" // by value it needs no quoting

// failsOver kills the pod of a primary, and counts the noons before, during and after the failover.
func (l *lottery) failsOver(primary string) {
	l.Helper()
	l.counts()
	l.drawn(10)
	l.kubectl("delete", "pod", primary, "--grace-period=0", "--force")
	killed := time.Now()
	l.await("noons after the failover", func() bool { return l.newest().Sub(killed) > 5*time.Second })
	l.Logf("the pod of the primary %s was killed %s ago, and noons are drawn in time", primary, time.Since(killed).Round(time.Second))
	n := int(l.newest().Sub(l.first) / time.Second)
	l.check(n, time.Time{})
}

// TestSentinel kills the pod of a primary that Sentinels watch. The database is an external MariaDB
// that requires TLS and a client certificate of its own authority.
func TestSentinel(t *testing.T) {
	t.Parallel()
	ours := servers.SelfSigned(t)
	own := ours.Sign(t, os.Getenv("KUBE_HOST_ADDRESS"))
	server := servers.MariaDBServer(t, "--ssl-ca="+ours.Cert, "--ssl-cert="+own.Cert, "--ssl-key="+own.Key)
	db := server.Database(t)
	server.Administer(t, fmt.Sprintf("ALTER USER %s@'%%' REQUIRE X509", db.User))
	host, port := lent(t, db.Port)

	c := newCluster(t, "noonlock-sentinel", restricted)
	c.knows(ours)
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=password="+password)
	c.kubectl("create", "secret", "generic", "db", "--from-literal=password="+db.Password)
	c.kubectl("create", "configmap", "people", "--from-file=entrants.csv=../../examples/lottery/entrants.csv")
	auth := []string{"--requirepass", password, "--masterauth", password}
	primary := c.redis("redis-0", auth...)
	for _, name := range []string{"redis-1", "redis-2"} {
		c.redis(name, append(auth, "--replicaof", primary, "6379")...)
	}
	for _, name := range []string{"sentinel-0", "sentinel-1", "sentinel-2"} {
		c.sentinel(name, primary, password)
	}
	for _, name := range []string{"sentinel-0", "sentinel-1", "sentinel-2"} {
		c.await(name+" to know all", func() bool {
			out := c.kubectl("exec", name, "-c", "redis", "--", "redis-cli", "-p", "26379", "info", "sentinel")
			return strings.Contains(out, "status=ok,address="+primary+":6379,slaves=2,sentinels=3")
		})
	}
	l := c.install("demo", "demo-lottery", chart, slices.Concat(each1s(), []string{
		"--set", `redis.url=redis+sentinel://sentinel-0:26379\,sentinel-1:26379\,sentinel-2:26379/0?master=lottery,redis.auth.existingSecret=redis`,
		"--set", fmt.Sprintf("database.url=mysql://%s@%s:%d/%s,database.auth.existingSecret=db", db.User, host, port, db.Database),
		"--set", "database.tls.ca.configMap=roots,database.tls.client.existingSecret=client,entrants.configMap=people",
	})...)
	l.failsOver("redis-0")
}

// TestCluster kills the pod of the primary that has the keys of the lottery. The database is an
// external MariaDB with a certificate of its own authority.
func TestCluster(t *testing.T) {
	t.Parallel()
	ours := servers.SelfSigned(t)
	own := ours.Sign(t, os.Getenv("KUBE_HOST_ADDRESS"))
	db := servers.MariaDBServer(t, "--ssl-cert="+own.Cert, "--ssl-key="+own.Key).Database(t)
	host, port := lent(t, db.Port)

	c := newCluster(t, "noonlock-cluster", restricted)
	c.knows(ours)
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=password="+password)
	c.kubectl("create", "secret", "generic", "db", "--from-literal=password="+db.Password)
	c.kubectl("create", "configmap", "people", "--from-file=entrants.csv=../../examples/lottery/entrants.csv")
	const nodes = 6
	create := []string{"exec", "redis-0", "-c", "redis", "--", "redis-cli", "-a", password, "--no-auth-warning", "--cluster", "create"}
	for i := range nodes {
		ip := c.redis(fmt.Sprintf("redis-%d", i), "--requirepass", password, "--masterauth", password,
			"--cluster-enabled", "yes", "--cluster-node-timeout", "3000")
		create = append(create, ip+":6379")
	}
	c.kubectl(append(create, "--cluster-replicas", "1", "--cluster-yes")...)
	ask := func(args ...string) string {
		return c.kubectl(append([]string{"exec", "redis-0", "-c", "redis", "--", "redis-cli", "-a", password, "--no-auth-warning"}, args...)...)
	}
	c.await("the cluster to have all replicas", func() bool {
		return strings.Contains(ask("cluster", "info"), "cluster_state:ok") && strings.Count(ask("cluster", "nodes"), " slave ") == 3
	})
	l := c.install("demo", "demo-lottery", chart, slices.Concat(each1s(), []string{
		"--set", `redis.url=redis+cluster://redis-0:6379\,redis-1:6379\,redis-2:6379,redis.auth.existingSecret=redis`,
		"--set", fmt.Sprintf("database.url=mysql://%s@%s:%d/%s?tls=true,database.auth.existingSecret=db", db.User, host, port, db.Database),
		"--set", "database.tls.ca.configMap=roots,entrants.configMap=people",
	})...)
	var primary string
	for i := range nodes {
		name := fmt.Sprintf("redis-%d", i)
		cli := []string{"exec", name, "-c", "redis", "--", "redis-cli", "-a", password, "--no-auth-warning"}
		if strings.HasPrefix(c.kubectl(append(cli, "role")...), "master") && strings.Contains(c.kubectl(append(cli, "--scan")...), "job/lottery") {
			primary = name
		}
	}
	if primary == "" {
		t.Fatal("no primary of the cluster has the keys of the lottery")
	}
	l.failsOver(primary)
}

// TestCertificates uses a Redis that requires TLS and a client certificate of its own authority.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "noonlock-certs", restricted)
	ours := servers.SelfSigned(t)
	c.knows(ours)
	own := ours.Sign(t, "redis")
	c.kubectl("create", "secret", "generic", "certs", "--from-file=ca.crt="+ours.Cert, "--from-file=server.crt="+own.Cert, "--from-file=server.key="+own.Key)
	c.redis("redis", "--port", "0", "--tls-port", "6379", "--tls-ca-cert-file", "/certs/ca.crt",
		"--tls-cert-file", "/certs/server.crt", "--tls-key-file", "/certs/server.key")
	l := c.install("demo", "demo-lottery", chart, slices.Concat(each1s(), bundled(), []string{
		"--set", "redis.url=rediss://redis:6379,redis.tls.ca.configMap=roots,redis.tls.client.existingSecret=client",
		"--set", "database.sqlite.enabled=true",
		"--set-file", "entrants.inline=../../examples/lottery/entrants.csv",
	})...)
	l.counts()
	l.drawn(5)
	l.check(4, time.Time{})
}
