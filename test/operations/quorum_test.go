//go:build linux

package operations

import (
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/noonlock/noonlock/internal/servers"
)

const quorumSection = "Servers of a quorum"

// servers starts Redis servers beside that of the world, and returns the URLs of all.
func (w *world) servers(n int) (all []*servers.RedisServer, urls []string) {
	w.Helper()
	all = []*servers.RedisServer{w.redis}
	for len(all) < n {
		all = append(all, servers.Redis(w))
	}
	for _, s := range all {
		urls = append(urls, "redis://"+s.Addr())
	}
	return all, urls
}

// member starts a replica of the lottery on several servers, with the number of their list.
func (w *world) member(identity, list string, urls []string) *program {
	w.Helper()
	return w.replica(identity, "LOTTERY_REDIS="+strings.Join(urls, " "), "LOTTERY_REDIS_LIST="+list, "LOTTERY_STATUSZ=off")
}

// quorum has a lottery on three servers. One restarts, and then a majority loses its data.
func quorum(w *world) {
	w.lottery("")
	all, urls := w.servers(3)
	doctor := w.take(w, "a server restarts", "wait until `noonctl doctor`, with `--redis` for each server, has no warning of `quorum`")
	examine := doctor[0] + " " + doctor[1] + " " + strings.Join(urls, " "+doctor[1]+" ")
	one := w.member("one", "1", urls)
	one.draws()
	key := w.take(w, quorumSection, "The key `noonlock:quorum` of each server has its state")[0]
	for _, s := range all {
		w.cli(s, "HGET "+key+" list") // fails if it has none
	}
	names := w.take(w, quorumSection, "So do `noonlock_quorum_server_up` and `noonlock_quorum_requests_total`")

	all[2].Stop()
	one.metric(names[0] + `\{server="` + all[2].Addr() + `"\} 0`)
	one.metric(names[1] + `\{outcome="failed",server="` + all[2].Addr() + `"\} [1-9]`)
	all[2].Restart(w) // it has lost its data
	w.take(w, "Clocks of several servers", "`noonctl doctor` compares the nodes of a cluster and the servers of a quorum")
	one.logs(`member of the quorum.* server=` + all[2].Addr() + ` (?:.*\n)*.*member of the quorum.* server=` + all[2].Addr())
	var r result
	w.until(func() bool {
		r = w.sh(examine)
		return !contains(r.out, `^(?:warn|fail) +quorum`)
	}, func() string { return "doctor has no warning: " + r.String() })
	if !contains(r.out, `^ok +quorum .*`+all[2].Addr(), `^\w+ +clock .*`+all[2].Addr()) {
		w.Errorf("doctor does not compare the servers: %s", r)
	}

	for _, s := range all[:2] {
		w.cli(s, "FLUSHALL")
	}
	one.answers("/readyz/ledger", http.StatusInternalServerError, `no quorum: .*have lost their data`)
	w.cli(all[2], w.command(quorumSection, "Then run `HDEL noonlock:quorum list` on each server that still has its data"))
	one.answers("/readyz", http.StatusOK, `^ok$`)
	one.draws()
}

// lists has a lottery on five servers. One of them is replaced, and then three remain.
func lists(w *world) {
	w.lottery("")
	all, urls := w.servers(6)
	old := w.member("old", "1", urls[:5])
	old.draws()
	w.take(w, quorumSection, "give all clients the new list with `QuorumConfig.List` increased by one")
	replaced := w.member("new", "2", urls[1:])
	old.logs(`level=ERROR msg="this process has other servers than the quorum"`)
	replaced.draws()
	old.end(syscall.SIGTERM)
	replaced.end(syscall.SIGTERM)
	w.raw.Pass(time.Second) // MaxTTL is the lease of the lottery
	key := w.take(w, quorumSection, "To have fewer servers, stop all clients for `MaxTTL`, delete the key `noonlock:quorum` on each remaining server, and start the clients with the new list")[1]
	for _, s := range all[3:] {
		w.cli(s, "DEL "+key)
	}
	w.member("fewer", "3", urls[3:]).draws()
}
