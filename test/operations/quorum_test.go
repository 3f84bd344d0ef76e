//go:build linux

package operations

import (
	"net/http"
	"strings"

	"github.com/noonlock/noonlock/internal/servers"
)

// quorum has a lottery on three servers. One restarts, and then a majority loses its data.
func quorum(w *world) {
	const section = "Servers of a quorum"
	w.lottery("")
	all := []*servers.RedisServer{w.redis, servers.Redis(w), servers.Redis(w)}
	doctor := w.take(w, "a server restarts", "wait until `noonctl doctor`, with `--redis` for each server, has no warning of `quorum`")
	var urls []string
	for _, s := range all {
		urls = append(urls, "redis://"+s.Addr())
	}
	examine := doctor[0] + " " + doctor[1] + " " + strings.Join(urls, " "+doctor[1]+" ")
	one := w.replica("one", "LOTTERY_REDIS="+strings.Join(urls, " "), "LOTTERY_STATUSZ=off")
	one.draws()
	key := w.take(w, section, "The key `noonlock:quorum` of each server has its state")[0]
	for _, s := range all {
		w.cli(s, "HGET "+key+" list") // fails if it has none
	}
	names := w.take(w, section, "So do `noonlock_quorum_server_up` and `noonlock_quorum_requests_total`")

	all[2].Stop()
	one.metric(names[0] + `\{server="` + all[2].Addr() + `"\} 0`)
	one.metric(names[1] + `\{outcome="failed",server="` + all[2].Addr() + `"\} [1-9]`)
	all[2].Restart(w) // it has lost its data
	w.take(w, "Clocks of several servers", "`noonctl doctor` compares the nodes of a cluster and the servers of a quorum")
	one.logs(`member of the quorum.* server=` + all[2].Addr() + ` (?:.*\n)*.*member of the quorum.* server=` + all[2].Addr())
	var r result
	w.until(func() bool {
		r = w.sh(examine)
		return r.code == 0 && !contains(r.out, `^(?:warn|fail) +quorum`)
	}, func() string { return "doctor has no warning: " + r.String() })
	if !contains(r.out, `^ok +quorum .*`+all[2].Addr(), `^ok +clock .*`+all[2].Addr()) {
		w.Errorf("doctor does not compare the servers: %s", r)
	}

	for _, s := range all[:2] {
		w.cli(s, "FLUSHALL")
	}
	one.answers("/readyz/ledger", http.StatusInternalServerError, `no quorum: .*have lost their data`)
	w.cli(all[2], w.command(section, "Then run `HDEL noonlock:quorum list` on each server that still has its data"))
	one.answers("/readyz", http.StatusOK, `^ok$`)
	one.draws()
}
