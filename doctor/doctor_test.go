package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// quick is a short examination that a busy machine does not disturb.
var quick = doctor.Config{Observe: 100 * time.Millisecond, Timeout: time.Minute}

// A patient is what Examine has found.
type patient struct {
	testing.TB
	*doctor.Report
}

func examine(t testing.TB, cfg doctor.Config, servers ...*redis.UniversalOptions) *patient {
	t.Helper()
	r := testenv.Call(doctor.Examine(t.Context(), servers, cfg)).Must(t)
	for _, c := range r.Checks {
		if c.Rule == "" || c.Found == "" || strings.Contains(c.Found, "%!") {
			t.Errorf("incomplete: %+v", c)
		}
	}
	return &patient{t, r}
}

// at returns options for a client of a server.
func at(s *servers.RedisServer) *redis.UniversalOptions { return with(testenv.Options(s.Addr())) }

// with returns options for a client with the options of another one.
func with(o *redis.Options) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{o.Addr}, Dialer: o.Dialer, Username: o.Username, Password: o.Password}
}

// nodes returns options for a client of a cluster.
func nodes(addrs []string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: addrs, IsClusterMode: true}
}

// has asserts that a check has a verdict, with these texts.
func (p *patient) has(check string, verdict doctor.Verdict, texts ...string) {
	p.Helper()
	var all []string
	for _, c := range p.Checks {
		if c.Name != check {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s: %s", c.Server, c.Verdict, c.Found))
		if c.Verdict == verdict && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(c.Found, text) }) {
			return
		}
	}
	p.Errorf("%s: want %s with %q, got %q", check, verdict, texts, all)
}

// raw returns a client that bypasses the doctor.
func raw(t testing.TB, s *servers.RedisServer) *redis.Client {
	t.Helper()
	c := redis.NewClient(testenv.Options(s.Addr()))
	t.Cleanup(func() { c.Close() })
	return c
}

func set(t testing.TB, rdb redis.UniversalClient, parameter, value string) {
	t.Helper()
	testenv.Must(t, rdb.ConfigSet(t.Context(), parameter, value).Err())
}

// All checks of a server with good settings are ok while it is in use, and nothing is left there.
// Round trips depend on the machine.
func TestAGoodServer(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t, "appendonly yes", "appendfsync always")
	c := e.Client("a")
	e.Hold(c, "orders")
	actors.Elector(e, c, "board", election.Config{})
	actors.Runner(e, c, "draw", "@yearly", singleton.JobConfig{}, actors.Nothing)
	p := examine(t, quick, at(e.Real))
	for _, check := range p.Checks {
		if check.Verdict != doctor.OK && check.Name != "round trip" || check.Server != e.Real.Addr() {
			t.Errorf("%+v", check)
		}
	}
	p.has("persistence", doctor.OK, "appendfsync always")
	p.has("schema", doctor.OK, "job 1 (1)", "leader 1 (1)", "lock nl1 (")
	p.has("keys", doctor.OK, " keys under the prefix")
	for _, use := range doctor.Uses() {
		p.has("rights", doctor.OK, use+": ")
	}
	p.has("round trip", p.worst("round trip"), "p50", "TTL of 10s")
	if p.Topology != "one server" {
		t.Errorf("topology %q", p.Topology)
	}
	if left := e.Raw.Keys(t.Context(), "*doctor*").Val(); len(left) > 0 {
		t.Errorf("keys are left: %q", left)
	}
	testenv.MustIs(e, doctor.CheckRights(t.Context(), c, "orders", "everything"), noonlock.ErrConfig)
	testenv.MustIs(e, doctor.CheckRights(t.Context(), c, "a b", doctor.UseMutex), noonlock.ErrConfig)
}

// worst returns the worst verdict of a check.
func (p *patient) worst(check string) doctor.Verdict {
	worst := doctor.OK
	for _, c := range p.Checks {
		if c.Name == check && (c.Verdict == doctor.Fail || worst == doctor.OK) {
			worst = c.Verdict
		}
	}
	return worst
}

// Each setting that weakens a guarantee is found.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t)
	rdb := raw(t, s)
	look := func() *patient { return examine(t, quick, at(s)) }

	p := look()
	p.has("persistence", doctor.Warn, "appendonly no, and no snapshots")
	p.has("memory", doctor.OK, "noeviction")
	p.has("timeouts", doctor.OK)
	p.has("min-replicas", doctor.OK, "no replicas")

	set(t, rdb, "save", "3600 1")
	set(t, rdb, "maxmemory-policy", "allkeys-lru")
	set(t, rdb, "timeout", "600")
	set(t, rdb, "min-replicas-to-write", "1")
	p = look()
	p.has("persistence", doctor.Warn, "since the last snapshot")
	p.has("memory", doctor.Warn, "allkeys-lru", "without limit", "0 keys evicted")
	p.has("timeouts", doctor.Warn, "timeout 600")
	p.has("min-replicas", doctor.Fail, "min-replicas-to-write 1, and 0 replicas", "refuses writes")
	for _, use := range doctor.Uses() {
		p.has("rights", doctor.Warn, use+": unknown: ", "NOREPLICAS")
	}

	set(t, rdb, "min-replicas-to-write", "0")
	used, err := strconv.Atoi(strings.TrimSpace(rdb.InfoMap(t.Context(), "memory").Item("Memory", "used_memory")))
	testenv.Must(t, err)
	set(t, rdb, "maxmemory", strconv.Itoa(used+1_000_000))
	for i := range 30 {
		testenv.Must(t, rdb.Set(t.Context(), fmt.Sprint("big", i), strings.Repeat("x", 100_000), 0).Err())
	}
	look().has("memory", doctor.Fail, "allkeys-lru", " MB used, ")
	set(t, rdb, "maxmemory-policy", "noeviction")
	set(t, rdb, "maxmemory", "1gb")
	p = look()
	p.has("memory", doctor.Warn, "noeviction", "evicted")
	if strings.Contains(fmt.Sprint(p.Checks), " 0 keys evicted") {
		t.Error("nothing was evicted")
	}

	set(t, rdb, "appendonly", "yes")
	look().has("persistence", doctor.OK, "appendfsync everysec")
	set(t, rdb, "appendfsync", "no")
	look().has("persistence", doctor.Warn, "appendfsync no")
}

// A primary with a replica, and the replica itself.
func TestReplicas(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t, "repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
	replica := servers.Redis(t, e.Real.ReplicaOf())
	e.Until("the replica is in sync", func() bool {
		return strings.Contains(e.Raw.Info(t.Context(), "replication").Val(), "state=online")
	})
	p := examine(t, quick, at(e.Real))
	p.has("min-replicas", doctor.Warn, "min-replicas-to-write 0, and 1 replica")
	p.has("replication", doctor.OK, replica.Addr()+" online")
	p.has("rights", doctor.OK, "MinReplicas: the user has the right +wait")
	examine(t, quick, with(e.As("hasty", "allkeys", "allchannels", "+@all", "-wait"))).has("rights", doctor.Warn, "MinReplicas: the user lacks the right +wait")
	if p.Topology != "a primary with 1 replica" {
		t.Errorf("topology %q", p.Topology)
	}

	p = examine(t, quick, at(replica))
	p.has("role", doctor.Fail, "replica of 127.0.0.1:")
	p.has("replication", doctor.OK, "connected")
	p.has("rights", doctor.Warn, "the server is a replica")
	e.Real.Kill()
	down := raw(t, replica)
	e.Until("the replica has noticed", func() bool {
		return strings.Contains(down.Info(t.Context(), "replication").Val(), "master_link_status:down")
	})
	examine(t, quick, at(replica)).has("replication", doctor.Warn, "not connected")
}

// Each missing right is named, and does not prevent the other checks.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	mutex := strings.Fields("~noonlock:* resetchannels &noonlock:ch:* +@all -info -config -scan -type -zmscore -ltrim -pexpireat")
	as := func(user string, rules ...string) *redis.UniversalOptions {
		return with(e.As(user, append(slices.Clip(mutex), rules...)...))
	}

	p := examine(t, quick, as("exact"))
	for _, check := range []string{"version", "role", "persistence", "memory", "min-replicas", "replication"} {
		p.has(check, doctor.Warn, "the user lacks the right +info")
	}
	p.has("rights", doctor.Warn, "LockDelay: the user lacks the right +info")
	p.has("timeouts", doctor.Warn, "the user lacks the right +config|get")
	p.has("keys", doctor.Warn, "the user lacks the right +scan")
	p.has("schema", doctor.Warn, "the user lacks the right +scan")
	p.has("messages", doctor.Warn, "channels of job: SUBSCRIBE was refused: ", "permissions to access")
	p.has("rights", doctor.OK, "mutex: the user has all rights")
	p.has("rights", doctor.Fail, "rwmutex: the user lacks the right +")
	p.has("rights", doctor.Fail, "election: the user lacks the right +")
	p.has("rights", doctor.Fail, "partitions: the user lacks the right +pexpireat")
	p.has("rights", doctor.Fail, "job: the user lacks the right +")

	only := quick
	only.Uses = []string{doctor.UseMutex}
	p = examine(t, only, as("exact"))
	p.has("messages", doctor.OK)
	if p.Verdict != doctor.Warn {
		t.Errorf("a user with the rights of a mutex, for mutexes: %+v", p.Report)
	}
	examine(t, only, as("less", "-hdel")).has("rights", doctor.Fail, "mutex: the user lacks the right +hdel")
	examine(t, only, as("mute", "-publish")).has("messages", doctor.Warn, "the user lacks the right +publish")
	examine(t, only, as("deaf", "-subscribe")).has("messages", doctor.Warn, "the user lacks the right +subscribe")
	examine(t, only, as("elsewhere", "resetchannels", "&other:*")).has("messages", doctor.Warn, "permissions to access")
	p = examine(t, only, as("untimed", "-time", "+scan"))
	p.has("clock", doctor.Warn, "the user lacks the right +time")
	p.has("keys", doctor.OK)
	testenv.Must(t, e.Raw.Set(t.Context(), "noonlock:{x}:fence", "1", time.Hour).Err())
	examine(t, only, as("blind", "+scan")).has("keys", doctor.Warn, "the user lacks the right +type")

	p = examine(t, quick, as("managed", "allkeys", "allchannels", "+@all", "-config"))
	p.has("version", doctor.OK)
	p.has("persistence", doctor.Warn, "appendonly no", "+config|get")
	p.has("timeouts", doctor.Warn, "+config|get")
}

// A server on which nothing can be acquired fails, whatever it says about its settings. The write is
// tried with the rights of each package, also without +info.
func TestFault113_ServersThatRefuseWrites(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t, "repl-diskless-sync-delay 0")
	users := map[string]*redis.UniversalOptions{}
	for _, use := range []string{doctor.UseMutex, doctor.UseJob} {
		users[use] = with(e.As(use, strings.Fields("~noonlock:* resetchannels &noonlock:* +@all -info")...))
	}
	look := func(verdict doctor.Verdict, text string) {
		t.Helper()
		for use, user := range users {
			cfg := quick
			cfg.Uses = []string{use}
			p := examine(t, cfg, user)
			p.has("write", verdict, text)
			if (p.Verdict == doctor.Fail) != (verdict == doctor.Fail) {
				t.Errorf("%s: the verdict is %s: %+v", use, p.Verdict, p.Checks)
			}
		}
		examine(t, quick, at(e.Real)).has("write", verdict, text)
	}
	look(doctor.OK, "")
	used, err := strconv.Atoi(strings.TrimSpace(e.Raw.InfoMap(t.Context(), "memory").Item("Memory", "used_memory")))
	testenv.Must(t, err)
	for parameter, values := range map[string][3]string{
		"maxmemory":             {strconv.Itoa(used / 2), "0", "OOM"},
		"min-replicas-to-write": {"1", "0", "NOREPLICAS"},
	} {
		set(t, e.Raw, parameter, values[0])
		look(doctor.Fail, "refuses to write: "+values[2])
		set(t, e.Raw, parameter, values[1])
	}
	look(doctor.OK, "")
	if left := e.Raw.Keys(t.Context(), "*doctor*").Val(); len(left) > 0 {
		t.Errorf("keys are left: %q", left)
	}
	examine(t, quick, with(e.As("reader", "allkeys", "allchannels", "+@all", "-set"))).has("write", doctor.Warn, "the user lacks the right +set")
	examine(t, quick, at(servers.Redis(t, e.Real.ReplicaOf()))).has("write", doctor.Fail, "READONLY")
}

// A managed service has no CONFIG.
func TestNoConfig(t *testing.T) {
	t.Parallel()
	p := examine(t, quick, at(servers.Redis(t, "appendonly yes", `rename-command CONFIG ""`)))
	p.has("timeouts", doctor.Warn, "the server has no CONFIG")
	p.has("persistence", doctor.Warn, "appendfsync is unknown", "CONFIG")
	p.has("memory", doctor.OK)
}

// Keys of other programs, keys without an end, and data of a newer version are found. The search
// is bounded.
func TestKeys(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	put := func(key, value string, ttl time.Duration) {
		t.Helper()
		testenv.Must(t, e.Raw.Set(t.Context(), key, value, ttl).Err())
	}
	look := func(cfg doctor.Config) *patient { return examine(t, cfg, at(e.Real)) }
	put("other:{x}:lock", "x", 0)
	put("noonlock2:{x}:lock", "x", 0)
	put("noonlock:history", "x", 0)
	put("noonlock:team/app:{x}:queue", "of a longer prefix", 0)
	look(quick).has("keys", doctor.OK, "1 key under the prefix")
	for _, foreign := range []string{"noonlock:cache", "noonlock:{x}:cache", "noonlock:{x}:lock:more", "noonlock:{x}:tomb", "noonlock:{x}:queue", "noonlock:{y}:lock"} {
		put(foreign, "x", time.Hour)
		p := look(quick)
		p.has("keys", doctor.Warn, "1 key of other programs", fmt.Sprintf("%q", foreign))
		testenv.Must(t, e.Raw.Del(t.Context(), foreign).Err())
	}
	put("noonlock:{x}:fence", "7", 0)
	look(quick).has("keys", doctor.Warn, `1 key without a TTL: "noonlock:{x}:fence"`)
	put("noonlock:{x}:lock", "x", 0)
	look(quick).has("keys", doctor.Fail, "2 keys without a TTL", `"noonlock:{x}:lock"`)

	testenv.Must(t, e.Raw.HSet(t.Context(), "noonlock:{job/x}:job", "v", "2").Err())
	look(quick).has("schema", doctor.Warn, "job 2 (1)")

	other := quick
	other.Prefix = "a*b"
	put("a*b:{x}:cache", "x", 0)
	put("aXb:{x}:cache", "x", 0)
	look(other).has("keys", doctor.Warn, "1 key under the prefix")

	pipe := e.Raw.Pipeline()
	for i := range 12_000 {
		pipe.Set(t.Context(), fmt.Sprint("a*b:", i), "x", 0)
	}
	_, err := pipe.Exec(t.Context())
	testenv.Must(t, err)
	look(other).has("keys", doctor.Warn, " keys of the server were searched: they have more than 10000 keys of the prefix")
}

// Whatever does not answer is reported, and Examine returns.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t, "requirepass secret")
	impatient := doctor.Config{Observe: 100 * time.Millisecond, Timeout: 3 * time.Second}
	good, wrong := testenv.Options(e.Real.Addr()), testenv.Options(e.Real.Addr())
	good.Password, wrong.Password = "secret", "wrong"
	examine(t, quick, with(wrong)).has("connection", doctor.Fail, "WRONGPASS")
	examine(t, quick, at(e.Real)).has("connection", doctor.Fail, "NOAUTH")
	examine(t, quick, with(testenv.Options("127.0.0.1:1"))).has("connection", doctor.Fail)

	// The server freezes during the examination, and before it.
	rdb := redis.NewClient(good)
	defer rdb.Close()
	long := doctor.Config{Observe: time.Hour, Timeout: 5 * time.Second}
	frozen := make(chan *patient)
	go func() { frozen <- examine(t, long, with(good)) }()
	e.Until("the clock is read", func() bool {
		return strings.Contains(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_time:")
	})
	e.Real.Pause()
	p := <-frozen
	p.has("connection", doctor.Fail, "no answer within 5s")
	p.has("version", doctor.OK)
	examine(t, impatient, with(good)).has("connection", doctor.Fail, "no answer within 3s")
	e.Real.Resume()

	// A Dialer ignores its context.
	hangs := *good
	end := make(chan struct{})
	hangs.Dialer = func(context.Context, string, string) (net.Conn, error) {
		<-end
		return nil, errors.New("ended")
	}
	impatient.Timeout = 300 * time.Millisecond
	examine(t, impatient, with(&hangs)).has("connection", doctor.Fail)
	close(end)

	// The caller gives up.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := doctor.Examine(ctx, []*redis.UniversalOptions{with(good)}, long)
	if err != nil || r.Verdict != doctor.Fail {
		t.Errorf("canceled: %+v, %v", r, err)
	}
}

// All nodes of a cluster are asked.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := servers.Cluster(t, 1, 1, "appendonly no", "cluster-node-timeout 30000") // a busy machine must not lose a node
	p := examine(t, quick, nodes(c.Addrs()))
	p.has("cluster", doctor.Warn, "cluster-require-full-coverage yes")
	p.has("role", doctor.OK, "replica of ")
	p.has("role", doctor.OK, "primary")
	p.has("replication", doctor.OK, "connected to its primary")
	p.has("messages", doctor.OK)
	p.has("rights", doctor.OK, "job: ")
	if p.Topology != "a cluster of 1 primary node and 1 replica" {
		t.Errorf("topology %q", p.Topology)
	}
	set(t, raw(t, c.Primaries[0]), "cluster-require-full-coverage", "no")
	set(t, raw(t, c.Replicas[0]), "cluster-require-full-coverage", "no")
	p = examine(t, quick, nodes(c.Addrs()))
	if p.worst("cluster") != doctor.OK {
		t.Errorf("%+v", p.Checks)
	}
	examine(t, quick, at(c.Primaries[0])).has("role", doctor.OK, "the only primary of a cluster")
	c.Primaries[0].Kill()
	c.Replicas[0].Kill()
	examine(t, quick, nodes(c.Addrs())).has("connection", doctor.Fail, "no connection")
}

// Each primary of a cluster has a name for trials, also if some of the given addresses do not answer. The order in which
// they are asked is random. One node alone is not a server for all names.
func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	c := servers.LendCluster(t)
	given := c.Addrs()[:1:1]
	for range 2 {
		l := testenv.Call(net.Listen("tcp", "127.0.0.1:0")).Must(t)
		t.Cleanup(func() { l.Close() })
		given = append(given, l.Addr().String())
	}
	patient := quick
	patient.Timeout = 15 * time.Second
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			p := examine(t, patient, nodes(slices.Clone(given)))
			for _, check := range []string{"messages", "write", "rights", "keys"} {
				at := map[string]bool{}
				for _, c := range p.Checks {
					at[c.Server] = at[c.Server] || c.Name == check && c.Verdict == doctor.OK
				}
				if slices.ContainsFunc(c.Addrs(), func(addr string) bool { return !at[addr] }) || p.Topology != "a cluster of 3 primary nodes and 0 replicas" {
					t.Errorf("%s: %+v", check, p.Report)
				}
			}
		})
	}
	all.Wait()
	examine(t, quick, at(c.Primaries[0])).has("role", doctor.Fail, "one node of a cluster with 3 primaries")
}

// Behind Sentinels, the primary is asked, and they are compared: one is stuck, one knows another name, and one hears
// nothing of a failover.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary := servers.Redis(t)
	replica := servers.Redis(t, primary.ReplicaOf())
	watching := func(name, of string) *servers.RedisServer { return servers.Sentinel(t, name, of, 1) }
	old, stuck, other := watching("noon", primary.Addr()), watching("noon", primary.Addr()), watching("other", primary.Addr())
	all := &redis.UniversalOptions{MasterName: "noon", Addrs: []string{old.Addr(), other.Addr(), stuck.Addr()}}
	look := func() *patient { return examine(t, quick, all) }
	p := look()
	p.has("sentinel", doctor.OK, "names the primary "+primary.Addr()+" since epoch 0")
	p.has("sentinel", doctor.Warn, "names no primary: the Sentinels know no primary of the name")
	p.has("timeouts", doctor.OK)
	p.has("min-replicas", doctor.Warn)
	p.has("role", doctor.OK, "primary")
	if p.Topology != "Sentinel with 1 replica" {
		t.Errorf("topology %q", p.Topology)
	}
	stuck.Pause()
	defer stuck.Resume()
	p = look()
	p.has("sentinel", doctor.Warn, "names no primary: lockcore: no answer within 1s")
	p.has("connection", doctor.OK)
	stale := watching("noon", replica.Addr())
	all.Addrs = []string{old.Addr(), watching("noon", primary.Addr()).Addr(), stale.Addr()}
	look().has("sentinel", doctor.Warn, "names the primary "+replica.Addr()+" since epoch 0; the newest is "+primary.Addr())
}

// The servers of a quorum are compared.
func TestQuorum(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	all := []*servers.RedisServer{e.Real, servers.Redis(t), servers.Redis(t)}
	look := func() *patient {
		t.Helper()
		var servers []*redis.UniversalOptions
		for _, s := range all {
			servers = append(servers, at(s))
		}
		return examine(t, quick, servers...)
	}
	p := look()
	p.has("quorum", doctor.OK, "no server has been used as one of a quorum yet")
	p.has("rights", doctor.OK, "election: ")
	for _, s := range all {
		if keys := raw(t, s).Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("keys %q", keys)
		}
	}
	if p.Topology != "3 independent servers" {
		t.Errorf("topology %q", p.Topology)
	}

	c := testenv.Call(lockcore.NewQuorum([]redis.UniversalClient{raw(t, all[0]), raw(t, all[1]), raw(t, all[2])}, lockcore.QuorumConfig{MaxTTL: 10 * time.Second})).Must(t)
	m := testenv.Call(c.Mutex("orders", lockcore.LeaseConfig{})).Must(t)
	_, _ = m.TryLock(t.Context()) // the servers wait for MaxTTL
	marker := func(s *servers.RedisServer, field string) string {
		return raw(t, s).HGet(t.Context(), "noonlock:quorum", field).Val()
	}
	e.Until("all servers were let in", func() bool {
		return !slices.ContainsFunc(all, func(s *servers.RedisServer) bool { return !strings.HasPrefix(marker(s, "list"), "1/3/2/") })
	})
	testenv.Must(t, c.Close(t.Context()))
	change := func(s *servers.RedisServer, field, value string) {
		testenv.Must(t, raw(t, s).HSet(t.Context(), "noonlock:quorum", field, value).Err())
	}
	for _, s := range all {
		change(s, "after", "1000")
	}
	p = look()
	for range all {
		p.has("quorum", doctor.OK, "list 1 of 3 servers, MaxTTL 10000 ms")
	}
	if p.worst("quorum") != doctor.OK {
		t.Errorf("%+v", p.Checks)
	}

	change(all[0], "after", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
	change(all[0], "longest", "20000")
	change(all[1], "list", "1/3/4/aa")
	look().has("quorum", doctor.Warn, "different servers under one number")
	change(all[1], "list", "2/5/1/aa")
	all[2].Kill()
	all[2].Restart(t)
	p = look()
	p.has("quorum", doctor.Warn, "grants nothing for another")
	p.has("quorum", doctor.Warn, "different MaxTTL")
	p.has("quorum", doctor.Fail, "different lists")
	p.has("quorum", doctor.Warn, "has 5 servers, and 3 were given")
	p.has("quorum", doctor.Warn, "no data of the quorum")
	change(all[2], "run", "another")
	change(all[2], "list", "1/3/2/aa")
	look().has("quorum", doctor.Warn, "has restarted")
	all[2] = all[0]
	look().has("quorum", doctor.Fail, "are the same server")
}

// Wrong arguments are refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	one := []*redis.UniversalOptions{{Addrs: []string{"127.0.0.1:1"}}}
	three := slices.Concat(one, one, one)
	for _, c := range []struct {
		text    string
		servers []*redis.UniversalOptions
		cfg     doctor.Config
	}{
		{"Config.TTL", one, doctor.Config{TTL: time.Millisecond}},
		{"Config.Observe", one, doctor.Config{Observe: -1}},
		{"Config.Timeout", one, doctor.Config{Timeout: time.Hour}},
		{"Config.Uses", one, doctor.Config{Uses: []string{"everything"}}},
		{"Config.Prefix", one, doctor.Config{Prefix: "a b"}},
		{"Config.Uses", three, doctor.Config{Uses: []string{doctor.UseJob}}},
		{"servers", nil, doctor.Config{}},
		{"servers", three[:2], doctor.Config{}},
	} {
		if _, err := doctor.Examine(t.Context(), c.servers, c.cfg); !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
