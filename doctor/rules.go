package doctor

// The names of the checks.
const (
	checkConnection  = "connection"
	checkVersion     = "version"
	checkRole        = "role"
	checkPersistence = "persistence"
	checkMemory      = "memory"
	checkMinReplicas = "min-replicas"
	checkReplication = "replication"
	checkCluster     = "cluster"
	checkTimeouts    = "timeouts"
	checkSentinel    = "sentinel"
	checkWrite       = "write"
	checkRights      = "rights"
	checkMessages    = "messages"
	checkKeys        = "keys"
	checkSchema      = "schema"
	checkClock       = "clock"
	checkRoundTrip   = "round trip"
	checkQuorum      = "quorum"
)

// rules has the rule of each check, as docs/OPERATIONS.md gives it.
var rules = map[string]string{
	checkConnection:  "Each server must answer, and accept the user and the password.",
	checkVersion:     "Redis 6.2 and later and Valkey have all required commands; a cluster needs Redis 7.0 or later. Test other servers before you use them.",
	checkRole:        "Use the address of a primary: a replica refuses every script. For a cluster, use the URL of a cluster: a client of one node cannot use the names of the others.",
	checkPersistence: "Set `appendonly yes`, and `appendfsync always` if a crash of the machine must lose nothing. Without persistence, a restart loses locks, queues and ledgers.",
	checkMemory:      "Set `maxmemory-policy noeviction`. Locks have a TTL, so the `volatile-*` policies evict them first. Do not use a server that other data can fill.",
	checkMinReplicas: "Set `min-replicas-to-write 1` and `min-replicas-max-lag` on every server that has replicas. A primary that is cut off from them then refuses writes.",
	checkReplication: "A failover loses the writes that the promoted replica lacks. Keep all replicas connected, and use `MinReplicas` if a lease must survive a failover.",
	checkCluster:     "Set `cluster-require-full-coverage no`, and leave `cluster-allow-pubsubshard-when-down` at `yes`. Otherwise the failure of one primary stops the names of all.",
	checkTimeouts:    "Keep `timeout` at 0.",
	checkSentinel:    "Each Sentinel must answer, and name the primary of the newest epoch. After a failover, this takes some seconds. Otherwise, mend or remove it.",
	checkWrite:       "The server must accept the write of a grant: a key with a TTL under the prefix. Give it memory or disk, connect the replicas that it requires, or use the address of the primary.",
	checkRights:      "Give the user the rights that docs/SECURITY.md lists, on every server. A missing right makes calls fail.",
	checkMessages:    "Allow the user to publish and subscribe on the channels of the prefix. Without messages, waiters are slow but correct.",
	checkKeys:        "Let no other program write under the prefix. A lock without a TTL is never free: `noonctl release NAME` removes it.",
	checkSchema:      "Update all programs: data of a newer schema is refused by older versions.",
	checkClock:       "Synchronize all servers and clients with one source, and let chrony slew the clocks. The difference between servers must stay below 1 % of the TTL + 2 ms.",
	checkRoundTrip:   "Remove the cause of slow answers, or use a longer TTL. Leases end if renewals are not answered in time.",
	checkQuorum:      "The servers of a quorum must be different servers, and all clients must have the same `List` and `MaxTTL`. A server that restarts grants nothing for `MaxTTL`.",
}
