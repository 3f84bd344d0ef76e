//go:build linux

package operations

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

const quorumSection = "Servers of a quorum"

// servers starts Redis servers beside that of the world, and returns all.
func (w *world) servers(n int) []*servers.RedisServer {
	w.Helper()
	all := []*servers.RedisServer{w.redis}
	for len(all) < n {
		all = append(all, servers.Redis(w))
	}
	return all
}

// member starts a candidate on a list of servers, with the number of the list.
func (w *world) member(list int, all []*servers.RedisServer) *program {
	w.Helper()
	words := []string{"noonctl elect orders --lease 1s --max-ttl 1s --metrics 127.0.0.1:0 --list", strconv.Itoa(list)}
	for _, s := range all {
		words = append(words, "--redis redis://"+s.Addr())
	}
	return w.start(strings.Join(append(words, "-- sh -c 'echo leads; exec sleep 600'"), " "))
}

// led returns how often the member has begun to lead.
func (p *program) led() int { return strings.Count("\n"+p.String(), "\nleads\n") }

// leads waits until the member has led so often.
func (p *program) leads(times int) {
	p.w.Helper()
	p.w.until(func() bool { return p.led() >= times }, func() string { return "it leads:\n" + p.String() })
}

// quorum has three servers. One restarts, and then a majority loses its data.
func quorum(w *world) {
	all := w.servers(3)
	doctor := w.take(w, "a server restarts with its data", "before you restart the next one, wait until `noonctl doctor`, with `--redis` for each server, has no warning of `quorum`")
	words := []string{doctor[0]}
	for _, s := range all {
		words = append(words, doctor[1], "redis://"+s.Addr())
	}
	examine := strings.Join(words, " ")
	one := w.member(1, all)
	one.leads(1)
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
	one.logs("have lost their data")
	led := one.led()
	w.cli(all[2], w.command(quorumSection, "Then run `HDEL noonlock:quorum list` on each server that still has its data"))
	one.leads(led + 1)
}

// lists has five servers. One of them is replaced, and then three remain.
func lists(w *world) {
	all := w.servers(6)
	old := w.member(1, all[:5])
	old.leads(1)
	w.take(w, quorumSection, "give all clients the new list with `QuorumConfig.List` increased by one")
	replaced := w.member(2, all[1:])
	old.logs(`level=ERROR msg="this process has other servers than the quorum"`)
	replaced.leads(1)
	old.end(syscall.SIGTERM)
	replaced.end(syscall.SIGTERM)
	w.raw.Pass(time.Second) // MaxTTL
	key := w.take(w, quorumSection, "To have fewer servers, stop all clients for `MaxTTL`, delete the key `noonlock:quorum` on each remaining server, and start the clients with the new list")[1]
	for _, s := range all[3:] {
		w.cli(s, "DEL "+key)
	}
	w.member(3, all[3:]).leads(1)
}
