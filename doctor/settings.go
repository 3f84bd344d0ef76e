package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// rules has the rule of each check, as docs/OPERATIONS.md gives it.
var rules = map[string]string{
	"connection":   "Each server must answer, and accept the user and the password.",
	"version":      "Redis 6.2 and later and Valkey have all required commands; a cluster needs Redis 7.0 or later. Test other servers before you use them.",
	"role":         "Use the address of a primary: a replica refuses every script. For a cluster, use the URL of a cluster: a client of one node cannot use the names of the others.",
	"persistence":  "Set `appendonly yes`, and `appendfsync always` if a crash of the machine must lose nothing. Without persistence, a restart loses locks, queues and ledgers.",
	"memory":       "Set `maxmemory-policy noeviction`. Locks have a TTL, so the `volatile-*` policies evict them first. Do not use a server that other data can fill.",
	"min-replicas": "Set `min-replicas-to-write 1` and `min-replicas-max-lag` on every server that has replicas. A primary that is cut off from them then refuses writes.",
	"replication":  "A failover loses the writes that the promoted replica lacks. Keep all replicas connected, and use `MinReplicas` if a lease must survive a failover.",
	"cluster":      "Set `cluster-require-full-coverage no`, and leave `cluster-allow-pubsubshard-when-down` at `yes`. Otherwise the failure of one primary stops the names of all.",
	"timeouts":     "Keep `timeout` at 0.",
	"sentinel":     "Each Sentinel must answer, and name the primary of the newest epoch. After a failover, this takes some seconds. Otherwise, mend or remove it.",
	"write":        "The server must accept the write of a grant: a key with a TTL under the prefix. Give it memory or disk, connect the replicas that it requires, or use the address of the primary.",
	"rights":       "Give the user the rights that docs/SECURITY.md lists, on every server. A missing right makes calls fail.",
	"messages":     "Allow the user to publish and subscribe on the channels of the prefix. Without messages, waiters are slow but correct.",
	"keys":         "Let no other program write under the prefix. A lock without a TTL is never free: `noonctl release NAME` removes it.",
	"schema":       "Update all programs: data of a newer schema is refused by older versions.",
	"clock":        "Synchronize all servers and clients with one source, and let chrony slew the clocks. The difference between servers must stay below 1 % of the TTL + 2 ms.",
	"round trip":   "Remove the cause of slow answers, or use a longer TTL. Leases end if renewals are not answered in time.",
	"quorum":       "The servers of a quorum must be different servers, and all clients must have the same `List` and `MaxTTL`. A server that restarts grants nothing for `MaxTTL`.",
}

// A setting is a check of the facts of a server. The answer is the first row whose terms hold.
type setting struct {
	check string
	info  bool // the check needs an answer to INFO
	rows  []row
}

type row struct {
	when    string // terms of facts.hold
	verdict Verdict
	found   string // {name} stands for the fact of this name
}

var settings = []setting{
	{"version", true, []row{
		{"dragonfly_version", Warn, "Dragonfly, which is not tested; it says that it is Redis {redis_version}"},
		{"garnet_version", Warn, "Garnet, which is not tested; it says that it is Redis {redis_version}"},
		{"mvcc_depth", Warn, "KeyDB, which is not tested; it says that it is Redis {redis_version}"},
		{"no-version", Warn, "unknown: the server does not say its version"},
		{"too-old", Fail, "{server} {version}"},
		{"too-old-as-cluster", Fail, "{server} {version} as a cluster"},
		{"too-new", Warn, "{server} {version}, which is not tested"},
		{"", OK, "{server} {version}"},
	}},
	{"role", true, []row{
		{"loading=1", Fail, "{is}, which is loading its data"},
		{"wrong", Fail, "{is}"},
		{"alone cluster-problem", Warn, "a node of a cluster; the size of the cluster is unknown: {cluster-problem}"},
		{"alone cluster_size=1", OK, "the only primary of a cluster"},
		{"alone", Fail, "one node of a cluster with {cluster_size} primaries, and the client is not one of a cluster"},
		{"", OK, "{is}"},
	}},
	{"persistence", true, []row{
		{"aof_enabled=1 aof_last_write_status aof_last_write_status!=ok", Fail, "the last write to the append-only file failed"},
		{"save rdb_last_bgsave_status rdb_last_bgsave_status!=ok", Fail, "the last snapshot failed; {snapshot}"},
		{"aof_enabled=1 !appendfsync", Warn, "appendonly yes; appendfsync is unknown: {config}"},
		{"aof_enabled=1 appendfsync=no", Warn, "appendonly yes, appendfsync no: a crash of the machine loses about half a minute of data"},
		{"aof_enabled=1 appendfsync=everysec", OK, "appendonly yes, appendfsync everysec: a crash of the machine loses one or two seconds of data"},
		{"aof_enabled=1", OK, "appendonly yes, appendfsync {appendfsync}"},
		{"save", Warn, `appendonly no: a restart loses everything since the last snapshot (save "{save}", {snapshot})`},
		{"?save", Warn, "appendonly no; whether snapshots are made is unknown: {config}; {snapshot}"},
		{"", Warn, "appendonly no, and no snapshots"},
	}},
	{"memory", true, []row{
		{"!maxmemory_policy", Warn, "unknown: the server does not say its maxmemory-policy"},
		{"maxmemory_policy!=noeviction maxmemory!=0", Fail, "{memory}"},
		{"maxmemory_policy!=noeviction evicted_keys!=0", Fail, "{memory}"},
		{"maxmemory_policy!=noeviction", Warn, "{memory}"},
		{"evicted_keys!=0", Warn, "{memory}"},
		{"nearly-full", Warn, "{memory}"},
		{"", OK, "{memory}"},
	}},
	{"min-replicas", true, []row{ // only a server that needs replicas has min_slaves_good_slaves
		{"role=slave", "", ""},
		{"min_slaves_good_slaves too-few ?min-replicas-to-write", Fail, "min-replicas-to-write above 0, and {in-time} in time: the server refuses writes"},
		{"min_slaves_good_slaves too-few", Fail, "min-replicas-to-write {min-replicas-to-write}, and {in-time} in time: the server refuses writes"},
		{"min_slaves_good_slaves ?min-replicas-to-write", Warn, "min-replicas-to-write is above 0, its value is unknown: {config}; {in-time} in time"},
		{"min_slaves_good_slaves", OK, "min-replicas-to-write {min-replicas-to-write}, and {in-time} in time"},
		{"replicas!=0", Warn, "min-replicas-to-write 0, and {connected}"},
		{"sentinel", Warn, "min-replicas-to-write 0, and {connected}"},
		{"", OK, "no replicas"},
	}},
	{"replication", true, []row{
		{"role=slave master_link_status=up", OK, "the replica is connected to its primary"},
		{"role=slave", Warn, "the replica is not connected to its primary"},
		{"!slave0 sentinel", Warn, "no replica is connected"},
		{"!slave0", OK, "no replicas"},
		{"late", Warn, "{followers}"},
		{"", OK, "{followers}"},
	}},
	{"timeouts", false, []row{
		{"?timeout", Warn, "the timeout of idle connections is unknown: {config}"},
		{"timeout!=0", Warn, "timeout {timeout}: the server closes connections that are idle for so many seconds"},
		{"", OK, "timeout 0"},
	}},
	{"cluster", false, []row{
		{"!sharded", "", ""},
		{"?cluster-require-full-coverage", Warn, "unknown: {config}"},
		{"cluster-require-full-coverage!=no", Warn, coverage},
		{"cluster-allow-pubsubshard-when-down=no", Warn, coverage},
		{"", OK, coverage},
	}},
}

const coverage = "cluster-require-full-coverage {cluster-require-full-coverage}, cluster-allow-pubsubshard-when-down {cluster-allow-pubsubshard-when-down}"

// parameters are the parameters of CONFIG that settings judge.
var parameters = []string{
	"appendfsync", "save", "timeout", "min-replicas-to-write", "cluster-require-full-coverage", "cluster-allow-pubsubshard-when-down",
}

func (n *node) readConfig(ctx context.Context) {
	n.config, n.configProblem = map[string]string{}, "the server does not have it"
	for _, p := range parameters { // one command for several parameters needs Redis 7.0
		values, problem := n.ask(ctx, "config", "get", p)
		n.configProblem = cmp.Or(problem, n.configProblem)
		for _, value := range conn.Pairs(values) {
			n.config[p] = wire.Text(value)
		}
	}
}

// judge returns the row that answers. The verdict is empty if the setting does not concern the server.
func (s setting) judge(f facts) (verdict Verdict, found string) {
	r := s.rows[slices.IndexFunc(s.rows, func(r row) bool { return f.hold(r.when) })]
	return r.verdict, placeholder.ReplaceAllStringFunc(r.found, func(name string) string { return f[strings.Trim(name, "{}")] })
}

var placeholder = regexp.MustCompile(`\{[^{}]+\}`)

// facts are the fields of INFO, the parameters of CONFIG and conclusions from them.
type facts map[string]string

// hold reports whether all terms hold: a=b, a!=b, a (is not empty), !a (is empty) and ?a (is unknown).
func (f facts) hold(terms string) bool {
	return !slices.ContainsFunc(strings.Fields(terms), func(text string) bool {
		m := term.FindStringSubmatch(text)
		value, known := f[m[2]]
		switch m[1] + m[3] {
		case "!":
			return value != ""
		case "?":
			return known
		case "=":
			return value != m[4]
		case "!=":
			return value == m[4]
		}
		return value == ""
	})
}

var term = regexp.MustCompile(`^([!?]?)([^=!]+)(?:(!?=)(.*))?$`)

func (n *node) judge(context.Context) {
	f := n.facts()
	for _, s := range settings {
		if s.info && n.info == nil {
			n.add(s.check, Warn, "unknown: %s", n.infoProblem)
		} else if verdict, found := s.judge(f); verdict != "" {
			n.add(s.check, verdict, "%s", found)
		}
	}
}

// facts returns the facts of the server. It also sets n.replicas and n.notPrimary.
func (n *node) facts() facts {
	f := facts{"config": n.configProblem, "server": "Redis", "version": n.info["redis_version"], "snapshot": "no snapshot yet", "is": "primary"}
	maps.Copy(f, n.info)
	maps.Copy(f, n.config)
	number := func(name string) int64 {
		value, _ := strconv.ParseInt(f[name], 10, 64)
		return value
	}
	flag := func(name string, holds bool) {
		if holds {
			f[name] = "yes"
		}
	}
	if f["server_name"] == "valkey" {
		f["server"], f["version"] = "Valkey", f["valkey_version"]
	}
	var major, minor int
	parsed, _ := fmt.Sscanf(f["version"], "%d.%d", &major, &minor)
	older := func(a, b int) bool { return major < a || major == a && minor < b }
	flag("no-version", parsed < 2)
	flag("too-old", older(6, 2))
	flag("too-old-as-cluster", n.sharded && older(7, 0))
	flag("too-new", !older(8, 1))

	follows := f["role"] == "slave"
	if follows {
		f["is"] = "replica of " + f["master_host"] + ":" + f["master_port"]
	} else {
		n.replicas = int(number("connected_slaves"))
	}
	n.notPrimary = follows && !n.clusterReplica && f["loading"] != "1"
	flag("wrong", n.notPrimary)
	flag("alone", f["cluster_enabled"] == "1" && !n.sharded)
	flag("sharded", n.sharded)
	flag("sentinel", n.sentinel)

	if at := number("rdb_last_save_time"); at > 0 {
		f["snapshot"] = "last snapshot " + time.Unix(at, 0).UTC().Format(time.RFC3339)
	}
	maxMemory, used, megabytes := number("maxmemory"), number("used_memory"), func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
	limit := "without limit"
	if maxMemory > 0 {
		limit = megabytes(maxMemory)
	}
	f["memory"] = fmt.Sprintf("maxmemory-policy %s, maxmemory %s, %s used, %s evicted", f["maxmemory_policy"], limit, megabytes(used), count(int(number("evicted_keys")), "key"))
	flag("nearly-full", maxMemory > 0 && used > maxMemory/10*9)

	inTime := number("min_slaves_good_slaves")
	f["in-time"], f["connected"], f["replicas"] = count(int(inTime), "replica"), count(n.replicas, "replica"), strconv.Itoa(n.replicas)
	flag("too-few", inTime < max(1, number("min-replicas-to-write")))
	late, followers := lagOf(n.info)
	if n.quorum {
		followers += "; they must not be servers of the quorum"
	}
	f["followers"] = followers
	flag("late", late)
	return f
}

// lateReplica is the silence after which a replica counts as late, as in min-replicas-max-lag.
const lateReplica = 10 // seconds

// lagOf describes the connected replicas, and reports whether one of them is late.
func lagOf(info map[string]string) (late bool, found string) {
	written, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	var all []string
	for i := 0; info["slave"+strconv.Itoa(i)] != ""; i++ {
		replica := parseInfo(strings.NewReplacer(",", "\n", "=", ":").Replace(info["slave"+strconv.Itoa(i)]))
		at, _ := strconv.ParseInt(replica["offset"], 10, 64)
		lag, _ := strconv.Atoi(replica["lag"])
		late = late || replica["state"] != "online" || lag > lateReplica
		all = append(all, fmt.Sprintf("%s:%s %s, last acknowledgement %d s ago, %d bytes behind", replica["ip"], replica["port"], replica["state"], lag, max(0, written-at)))
	}
	slices.Sort(all)
	return late, strings.Join(all, "; ")
}
