package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A finding is one of the things that a check can find.
type finding struct {
	holds   bool
	verdict Verdict
	found   string
}

func when(holds bool, verdict Verdict, format string, args ...any) finding {
	return finding{holds, verdict, fmt.Sprintf(format, args...)}
}

// first records the first finding that holds.
func (n *node) first(check string, all ...finding) {
	for _, f := range all {
		if f.holds {
			n.add(check, f.verdict, "%s", f.found)
			return
		}
	}
}

// judge judges what INFO and CONFIG GET say.
func (n *node) judge(ctx context.Context) {
	judges := []struct {
		check string
		of    func(context.Context)
	}{
		{checkVersion, n.judgeVersion},
		{checkRole, n.judgeRole},
		{checkPersistence, n.judgePersistence},
		{checkMemory, n.judgeMemory},
		{checkMinReplicas, n.judgeMinReplicas},
		{checkReplication, n.judgeReplication},
	}
	for _, judge := range judges {
		if n.info == nil {
			n.add(judge.check, Warn, "unknown: %s", n.infoMissing)
		} else {
			judge.of(ctx)
		}
	}
	n.judgeTimeouts()
	if n.sharded {
		n.judgeCluster()
	}
}

func (n *node) judgeVersion(context.Context) {
	name, version := "Redis", n.info["redis_version"]
	if n.info["server_name"] == "valkey" {
		name, version = "Valkey", n.info["valkey_version"]
	}
	other := ""
	for field, of := range map[string]string{"dragonfly_version": "Dragonfly", "garnet_version": "Garnet", "mvcc_depth": "KeyDB"} {
		if _, ok := n.info[field]; ok {
			other = of
		}
	}
	var major, minor int
	parsed, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	older := func(a, b int) bool { return major < a || major == a && minor < b }
	n.first(checkVersion,
		when(other != "", Warn, "%s, which is not tested; it says that it is Redis %s", other, version),
		when(parsed < 2, Warn, "unknown: the server does not say its version"),
		when(older(6, 2), Fail, "%s %s", name, version),
		when(n.sharded && older(7, 0), Fail, "%s %s as a cluster", name, version),
		when(!older(8, 1), Warn, "%s %s, which is not tested", name, version),
		when(true, OK, "%s %s", name, version))
}

func (n *node) judgeRole(ctx context.Context) {
	role, follows := "primary", n.info["role"] == "slave"
	if follows {
		role = "replica of " + n.info["master_host"] + ":" + n.info["master_port"]
	}
	loads := n.info["loading"] == "1"
	n.isWrong = follows && !n.isReplica && !loads
	size, missing := "", ""
	alone := n.info["cluster_enabled"] == "1" && !n.sharded && !n.isWrong && !loads // a node of a cluster as a single server
	if alone {
		missing = n.ask(ctx, "cluster|info", func(ctx context.Context) error {
			text, err := n.rdb.ClusterInfo(ctx).Result()
			size = parseInfo(text)["cluster_size"]
			return err
		})
	}
	n.first(checkRole,
		when(loads, Fail, "%s, which is loading its data", role),
		when(n.isWrong, Fail, "%s", role),
		when(missing != "", Warn, "a node of a cluster; the size of the cluster is unknown: %s", missing),
		when(alone && size == "1", OK, "the only primary of a cluster"),
		when(alone, Fail, "one node of a cluster with %s primaries, and the client is not one of a cluster", size),
		when(true, OK, "%s", role))
}

func (n *node) judgePersistence(context.Context) {
	saved := "no snapshot yet"
	if at := n.number("rdb_last_save_time"); at > 0 {
		saved = "last snapshot " + time.Unix(at, 0).UTC().Format(time.RFC3339)
	}
	fsync, missing := n.setting("appendfsync")
	save, unknown := n.setting("save")
	failed := func(status string) bool { return n.info[status] != "" && n.info[status] != "ok" }
	appends := n.info["aof_enabled"] == "1"
	n.first(checkPersistence,
		when(appends && failed("aof_last_write_status"), Fail, "the last write to the append-only file failed"),
		when(save != "" && failed("rdb_last_bgsave_status"), Fail, "the last snapshot failed; %s", saved),
		when(appends && fsync == "", Warn, "appendonly yes; appendfsync is unknown: %s", missing),
		when(appends && fsync == "no", Warn, "appendonly yes, appendfsync no: a crash of the machine loses about half a minute of data"),
		when(appends && fsync == "everysec", OK, "appendonly yes, appendfsync everysec: a crash of the machine loses one or two seconds of data"),
		when(appends, OK, "appendonly yes, appendfsync %s", fsync),
		when(save != "", Warn, "appendonly no: a restart loses everything since the last snapshot (save %q, %s)", save, saved),
		when(unknown != "", Warn, "appendonly no; whether snapshots are made is unknown: %s; %s", unknown, saved),
		when(true, Warn, "appendonly no, and no snapshots"))
}

func (n *node) judgeMemory(context.Context) {
	policy, most, used, evicted := n.info["maxmemory_policy"], n.number("maxmemory"), n.number("used_memory"), n.number("evicted_keys")
	megabytes := func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
	limit := "without limit"
	if most > 0 {
		limit = megabytes(most)
	}
	found := fmt.Sprintf("maxmemory-policy %s, maxmemory %s, %s used, %s evicted", policy, limit, megabytes(used), count(int(evicted), "key"))
	n.first(checkMemory,
		when(policy == "", Warn, "unknown: the server does not say its maxmemory-policy"),
		when(policy != "noeviction" && (most > 0 || evicted > 0), Fail, "%s", found),
		when(policy != "noeviction" || evicted > 0 || most > 0 && used > most/10*9, Warn, "%s", found),
		when(true, OK, "%s", found))
}

func (n *node) judgeMinReplicas(context.Context) {
	if n.info["role"] == "slave" {
		return
	}
	n.replicas = int(n.number("connected_slaves"))
	least, missing := n.setting("min-replicas-to-write")
	needed, _ := strconv.Atoi(least)
	_, counted := n.info["min_slaves_good_slaves"] // absent if the server needs no replicas
	good := int(n.number("min_slaves_good_slaves"))
	n.first(checkMinReplicas,
		when(counted && (good < needed || good == 0), Fail, "min-replicas-to-write %s, and %s in time: the server refuses writes", cmp.Or(least, "above 0"), count(good, "replica")),
		when(counted && missing != "", Warn, "min-replicas-to-write is above 0, its value is unknown: %s; %s in time", missing, count(good, "replica")),
		when(counted, OK, "min-replicas-to-write %s, and %s in time", least, count(good, "replica")),
		when(n.replicas > 0 || n.sentinel, Warn, "min-replicas-to-write 0, and %s", count(n.replicas, "replica")),
		when(true, OK, "no replicas"))
}

func (n *node) judgeReplication(context.Context) {
	follows := n.info["role"] == "slave"
	verdict, found := lagOf(n.info)
	if n.e.quorum && found != "" {
		found += "; they must not be servers of the quorum"
	}
	n.first(checkReplication,
		when(follows && n.info["master_link_status"] == "up", OK, "the replica is connected to its primary"),
		when(follows, Warn, "the replica is not connected to its primary"),
		when(found == "" && n.sentinel, Warn, "no replica is connected"),
		when(found == "", OK, "no replicas"),
		when(true, verdict, "%s", found))
}

// lateReplica is the silence after which a replica counts as late, as in min-replicas-max-lag.
const lateReplica = 10 // seconds

// lagOf judges the replicas in the INFO of a primary.
func lagOf(info map[string]string) (Verdict, string) {
	written, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	verdict := OK
	var found []string
	for i := 0; info["slave"+strconv.Itoa(i)] != ""; i++ {
		of := parseInfo(strings.NewReplacer(",", "\n", "=", ":").Replace(info["slave"+strconv.Itoa(i)]))
		at, _ := strconv.ParseInt(of["offset"], 10, 64)
		lag, _ := strconv.Atoi(of["lag"])
		if of["state"] != "online" || lag > lateReplica {
			verdict = Warn
		}
		found = append(found, fmt.Sprintf("%s:%s %s, last acknowledgement %d s ago, %d bytes behind", of["ip"], of["port"], of["state"], lag, max(0, written-at)))
	}
	slices.Sort(found)
	return verdict, strings.Join(found, "; ")
}

func (n *node) judgeTimeouts() {
	idle, missing := n.setting("timeout")
	n.first(checkTimeouts,
		when(missing != "", Warn, "the timeout of idle connections is unknown: %s", missing),
		when(idle != "0", Warn, "timeout %s: the server closes connections that are idle for so many seconds", idle),
		when(true, OK, "timeout 0"))
}

func (n *node) judgeCluster() {
	whole, missing := n.setting("cluster-require-full-coverage")
	messages, _ := n.setting("cluster-allow-pubsubshard-when-down")
	found := fmt.Sprintf("cluster-require-full-coverage %s, cluster-allow-pubsubshard-when-down %s", whole, messages)
	n.first(checkCluster,
		when(missing != "", Warn, "unknown: %s", missing),
		when(whole != "no" || messages == "no", Warn, "%s", found),
		when(true, OK, "%s", found))
}

func (n *node) readInfo(ctx context.Context) {
	n.infoMissing = n.ask(ctx, "info", func(ctx context.Context) error {
		text, err := n.rdb.Info(ctx).Result()
		if err == nil {
			n.info = parseInfo(text)
		}
		return err
	})
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}

func (n *node) number(field string) int64 {
	value, _ := strconv.ParseInt(n.info[field], 10, 64)
	return value
}

var parameters = []string{
	"appendfsync", "save", "timeout", "min-replicas-to-write", "cluster-require-full-coverage", "cluster-allow-pubsubshard-when-down",
}

// setting returns a setting. If it is unknown, missing says why.
func (n *node) setting(parameter string) (value, missing string) {
	if value, ok := n.config[parameter]; ok {
		return value, ""
	}
	return "", n.config["!"]
}

func (n *node) readConfig(ctx context.Context) {
	answers := make([]*redis.MapStringStringCmd, len(parameters))
	missing := n.ask(ctx, "config|get", func(ctx context.Context) error {
		pipe := n.rdb.Pipeline()
		for i, p := range parameters { // several in one command need Redis 7.0
			answers[i] = pipe.ConfigGet(ctx, p)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	n.config = map[string]string{"!": cmp.Or(missing, "the server does not have it")}
	for i, a := range answers {
		if value, ok := a.Val()[parameters[i]]; ok {
			n.config[parameters[i]] = value
		}
	}
}
