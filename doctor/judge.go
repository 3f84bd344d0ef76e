package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// judge judges what INFO and CONFIG GET say.
func (n *node) judge(ctx context.Context) error {
	if n.info == nil {
		checks := []string{checkVersion, checkRole, checkPersistence, checkMemory, checkMinReplicas, checkReplication}
		for _, check := range checks {
			n.add(check, Warn, "unknown: %s", refusal("info", n.infoErr))
		}
	} else {
		n.judgeVersion()
		if err := n.judgeRole(ctx); err != nil {
			return err
		}
		n.judgePersistence()
		n.judgeMemory()
		n.judgeReplicas()
	}
	n.judgeTimeouts()
	if n.sharded {
		n.judgeCluster()
	}
	return nil
}

// versionOf returns the first two numbers of a version.
func versionOf(text string) (major, minor int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}

func (n *node) judgeVersion() {
	name, version := "Redis", n.info["redis_version"]
	if n.info["server_name"] == "valkey" {
		name, version = "Valkey", n.info["valkey_version"]
	}
	for field, other := range map[string]string{"dragonfly_version": "Dragonfly", "garnet_version": "Garnet", "mvcc_depth": "KeyDB"} {
		if _, ok := n.info[field]; ok {
			n.add(checkVersion, Warn, "%s, which is not tested; it says that it is Redis %s", other, version)
			return
		}
	}
	major, minor, ok := versionOf(version)
	older := func(a, b int) bool { return major < a || major == a && minor < b }
	switch {
	case !ok:
		n.add(checkVersion, Warn, "unknown: the server does not say its version")
	case older(6, 2):
		n.add(checkVersion, Fail, "%s %s", name, version)
	case n.sharded && older(7, 0):
		n.add(checkVersion, Fail, "%s %s as a cluster", name, version)
	case !older(8, 1):
		n.add(checkVersion, Warn, "%s %s, which is not tested", name, version)
	default:
		n.add(checkVersion, OK, "%s %s", name, version)
	}
}

func (n *node) judgeRole(ctx context.Context) error {
	role := "primary"
	if n.info["role"] == "slave" {
		role = "replica of " + n.info["master_host"] + ":" + n.info["master_port"]
	}
	switch {
	case n.info["loading"] == "1":
		n.add(checkRole, Fail, "%s, which is loading its data", role)
	case n.info["role"] == "slave" && !n.isReplica:
		n.isWrong = true
		n.add(checkRole, Fail, "%s", role)
	case n.info["cluster_enabled"] == "1" && !n.sharded:
		return n.judgeLoneNode(ctx)
	default:
		n.add(checkRole, OK, "%s", role)
	}
	return nil
}

// judgeLoneNode judges a node of a cluster that is used as a single server.
func (n *node) judgeLoneNode(ctx context.Context) error {
	var text string
	err := n.ask(ctx, func(ctx context.Context) (err error) {
		text, err = n.rdb.ClusterInfo(ctx).Result()
		return err
	})
	switch {
	case isRefusal(err):
		n.add(checkRole, Warn, "a node of a cluster; the size of the cluster is unknown: %s", refusal("cluster|info", err))
	case err != nil:
		return err
	case parseInfo(text)["cluster_size"] == "1":
		n.add(checkRole, OK, "the only primary of a cluster")
	default:
		n.add(checkRole, Fail, "one node of a cluster with %s primaries, and the client is not one of a cluster", parseInfo(text)["cluster_size"])
	}
	return nil
}

func (n *node) judgePersistence() {
	saved := "no snapshot yet"
	if at := n.number("rdb_last_save_time"); at > 0 {
		saved = "last snapshot " + time.Unix(at, 0).UTC().Format(time.RFC3339)
	}
	fsync, missing := n.setting("appendfsync")
	save, unknown := n.setting("save")
	snapshots := save != ""
	switch {
	case n.info["aof_enabled"] == "1" && !isFine(n.info["aof_last_write_status"]):
		n.add(checkPersistence, Fail, "the last write to the append-only file failed")
	case snapshots && !isFine(n.info["rdb_last_bgsave_status"]):
		n.add(checkPersistence, Fail, "the last snapshot failed; %s", saved)
	case n.info["aof_enabled"] == "1" && fsync == "":
		n.add(checkPersistence, Warn, "appendonly yes; appendfsync is unknown: %s", missing)
	case n.info["aof_enabled"] == "1" && fsync == "no":
		n.add(checkPersistence, Warn, "appendonly yes, appendfsync no: a crash of the machine loses about half a minute of data")
	case n.info["aof_enabled"] == "1" && fsync == "everysec":
		n.add(checkPersistence, OK, "appendonly yes, appendfsync everysec: a crash of the machine loses one or two seconds of data")
	case n.info["aof_enabled"] == "1":
		n.add(checkPersistence, OK, "appendonly yes, appendfsync %s", fsync)
	case snapshots:
		n.add(checkPersistence, Warn, "appendonly no: a restart loses everything since the last snapshot (save %q, %s)", save, saved)
	case unknown != "":
		n.add(checkPersistence, Warn, "appendonly no; whether snapshots are made is unknown: %s; %s", unknown, saved)
	default:
		n.add(checkPersistence, Warn, "appendonly no, and no snapshots")
	}
}

// isFine reports whether a status of INFO is not a failure.
func isFine(status string) bool { return status == "" || status == "ok" }

func (n *node) judgeMemory() {
	policy, most, used, evicted := n.info["maxmemory_policy"], n.number("maxmemory"), n.number("used_memory"), n.number("evicted_keys")
	limit := "without limit"
	if most > 0 {
		limit = megabytes(most)
	}
	found := fmt.Sprintf("maxmemory-policy %s, maxmemory %s, %s used, %s evicted", policy, limit, megabytes(used), count(int(evicted), "key"))
	switch {
	case policy == "":
		n.add(checkMemory, Warn, "unknown: the server does not say its maxmemory-policy")
	case policy != "noeviction" && (most > 0 || evicted > 0):
		n.add(checkMemory, Fail, "%s", found)
	case policy != "noeviction", evicted > 0, most > 0 && used > most/10*9:
		n.add(checkMemory, Warn, "%s", found)
	default:
		n.add(checkMemory, OK, "%s", found)
	}
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// judgeReplicas judges the replication, as this server sees it.
func (n *node) judgeReplicas() {
	if n.info["role"] == "slave" {
		n.judgeLink()
		return
	}
	n.replicas = int(n.number("connected_slaves"))
	least, missing := n.setting("min-replicas-to-write")
	needed, _ := strconv.Atoi(least)
	_, counted := n.info["min_slaves_good_slaves"] // absent if the server needs no replicas
	good := int(n.number("min_slaves_good_slaves"))
	switch {
	case counted && (good < needed || good == 0):
		n.add(checkMinReplicas, Fail, "min-replicas-to-write %s, and %s in time: the server refuses writes", cmp.Or(least, "above 0"), count(good, "replica"))
	case counted && missing != "":
		n.add(checkMinReplicas, Warn, "min-replicas-to-write is above 0, its value is unknown: %s; %s in time", missing, count(good, "replica"))
	case counted:
		n.add(checkMinReplicas, OK, "min-replicas-to-write %s, and %s in time", least, count(good, "replica"))
	case n.replicas > 0 || n.sentinel:
		n.add(checkMinReplicas, Warn, "min-replicas-to-write 0, and %s", count(n.replicas, "replica"))
	default:
		n.add(checkMinReplicas, OK, "no replicas")
	}
	verdict, found := lagOf(n.info, n.sentinel)
	if n.e.quorum && n.replicas > 0 {
		found += "; they must not be servers of the quorum"
	}
	n.add(checkReplication, verdict, "%s", found)
}

// lateReplica is the silence after which a replica counts as late, as in min-replicas-max-lag.
const lateReplica = 10 // seconds

// lagOf judges the replicas in the INFO of a primary.
func lagOf(info map[string]string, sentinel bool) (Verdict, string) {
	written, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	verdict := OK
	var found []string
	for i := 0; ; i++ {
		line, ok := info["slave"+strconv.Itoa(i)]
		if !ok {
			break
		}
		of := map[string]string{}
		for pair := range strings.SplitSeq(line, ",") {
			key, value, _ := strings.Cut(pair, "=")
			of[key] = value
		}
		at, _ := strconv.ParseInt(of["offset"], 10, 64)
		lag, _ := strconv.Atoi(of["lag"])
		if of["state"] != "online" || lag > lateReplica {
			verdict = Warn
		}
		found = append(found, fmt.Sprintf("%s:%s %s, last acknowledgement %d s ago, %d bytes behind", of["ip"], of["port"], of["state"], lag, max(0, written-at)))
	}
	switch {
	case found != nil:
		slices.Sort(found)
	case sentinel:
		return Warn, "no replica is connected"
	default:
		return OK, "no replicas"
	}
	return verdict, strings.Join(found, "; ")
}

// judgeLink judges the connection of a replica to its primary.
func (n *node) judgeLink() {
	if n.info["master_link_status"] != "up" {
		n.add(checkReplication, Warn, "the replica is not connected to its primary")
		return
	}
	n.add(checkReplication, OK, "the replica is connected to its primary")
}

func (n *node) judgeTimeouts() {
	idle, missing := n.setting("timeout")
	switch {
	case missing != "":
		n.add(checkTimeouts, Warn, "the timeout of idle connections is unknown: %s", missing)
	case idle != "0":
		n.add(checkTimeouts, Warn, "timeout %s: the server closes connections that are idle for so many seconds", idle)
	case n.sentinel && n.slowSentinel:
		n.add(checkTimeouts, Warn, "timeout 0; the failover client has longer timeouts or retries, so a frozen Sentinel delays connections")
	default:
		n.add(checkTimeouts, OK, "timeout 0")
	}
}

func (n *node) judgeCluster() {
	whole, missing := n.setting("cluster-require-full-coverage")
	messages, _ := n.setting("cluster-allow-pubsubshard-when-down")
	found := fmt.Sprintf("cluster-require-full-coverage %s, cluster-allow-pubsubshard-when-down %s", whole, messages)
	switch {
	case missing != "":
		n.add(checkCluster, Warn, "unknown: %s", missing)
	case whole != "no", messages == "no":
		n.add(checkCluster, Warn, "%s", found)
	default:
		n.add(checkCluster, OK, "%s", found)
	}
}
