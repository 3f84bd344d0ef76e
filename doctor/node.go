package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A node is one server.
type node struct {
	e     *examination
	name  string // its address
	dials *conn.Dialer
	pipe  *conn.Pipe // nil: not connected yet

	sentinel  bool   // the address comes from Sentinels
	sharded   bool   // it is a node of a cluster
	isReplica bool   // of a cluster
	isWrong   bool   // it is a replica, and should be a primary
	scratch   string // a name whose keys this server has, for trials

	info          map[string]string // nil: INFO was refused
	infoMissing   string            // why
	config        map[string]string // by parameter, without those that were refused
	configMissing string            // why

	replicas int
	clock    *estimate
	member   facts // see readMember; nil: unknown
	silence  error // why it has not answered a question

	connection Check
	checks     []Check
}

// add records a check, unless the server has not answered a question.
func (n *node) add(check string, verdict Verdict, format string, args ...any) {
	if n.silence == nil {
		n.checks = append(n.checks, checkOf(n.name, check, verdict, format, args...))
	}
}

// findNodes finds all servers. It asks only a cluster and Sentinels, whose answers it compares.
func (e *examination) findNodes(ctx context.Context) error {
	servers, views, err := lock.Of(e.client).Servers(ctx, e.cfg.Timeout)
	for _, v := range views {
		named := fmt.Sprintf("names the primary %s since epoch %d", v.Primary, v.Epoch)
		if v.Epoch < 0 {
			named = fmt.Sprintf("names the primary %s, and does not tell the epoch (SENTINEL MASTER)", v.Primary)
		}
		check := checkOf(v.Sentinel, "sentinel", OK, "%s", named)
		switch {
		case v.Err != nil:
			check = checkOf(v.Sentinel, "sentinel", Warn, "names no primary: %s", oneLine(v.Err))
		case err != nil:
			check = checkOf(v.Sentinel, "sentinel", Warn, "%s; the newest is unknown", named)
		case v.Primary != servers[0].Options.Addr:
			check = checkOf(v.Sentinel, "sentinel", Warn, "%s; the newest is %s", named, servers[0].Options.Addr)
		}
		e.checks = append(e.checks, check)
	}
	if err != nil {
		return err
	}
	sharded := slices.ContainsFunc(servers, func(s lock.Server) bool { return s.Tag != "" })
	for _, s := range servers {
		s.Options.DialTimeout = e.cfg.Timeout
		e.nodes = append(e.nodes, &node{
			e: e, name: s.Options.Addr, scratch: cmp.Or(s.Tag, "doctor"), sentinel: views != nil, sharded: sharded, isReplica: sharded && s.Tag == "",
			dials: conn.NewDialer(conn.Options{Redis: s.Options}),
		})
	}
	return nil
}

// examine asks the server, as long as it answers.
func (n *node) examine(ctx context.Context) {
	defer n.dials.Close()
	steps := []func(context.Context){n.open, n.readInfo, n.readConfig, n.judge}
	switch {
	case n.e.quorum:
		steps = append(steps, n.tryMessages, n.searchKeys, n.tryWrite, n.readMember, n.observe)
	case n.isReplica:
		steps = append(steps, n.observe)
	default:
		steps = append(steps, n.tryOptions, n.tryMessages, n.searchKeys, n.tryWrite, n.observe, n.tryRights)
	}
	n.connection = Check{Name: "connection", Server: n.name, Verdict: OK, Found: "the server answers"}
	for _, step := range steps {
		if step(ctx); n.silence != nil {
			n.connection = unconnected(n.name, n.silence)
			break
		}
	}
	if n.pipe != nil {
		n.pipe.Drop()
	}
}

// unconnected returns the check of a server that did not answer, or refused the user.
func unconnected(server string, err error) Check {
	return Check{Name: "connection", Server: server, Verdict: Fail, Found: oneLine(err), Unanswered: !wire.IsRefused(err)}
}

// open makes the connection for all questions.
func (n *node) open(ctx context.Context) { n.pipe, n.silence = n.connect(ctx) }

func (n *node) connect(ctx context.Context) (*conn.Pipe, error) {
	ctx, cancel := context.WithTimeout(ctx, n.e.cfg.Timeout)
	defer cancel()
	p, err := n.dials.Connect(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(wire.NoAnswer(n.e.cfg.Timeout), err)
	}
	return p, err
}

// ask asks a question. missing is not empty if there is no answer, and says why the server has refused it.
func (n *node) ask(ctx context.Context, args ...any) (answer any, missing string) {
	a := n.askAll(ctx, conn.Command{Args: args})[0]
	return a.Value, refusal(a.Err, args...)
}

// askAll asks questions in one round trip. After one without an answer, no other one is asked.
func (n *node) askAll(ctx context.Context, questions ...conn.Command) []conn.Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, n.e.cfg.Timeout, wire.NoAnswer(n.e.cfg.Timeout))
	defer cancel()
	if n.silence == nil {
		defer context.AfterFunc(ctx, n.pipe.Drop)()
		answers, err := n.pipe.Ask(questions...)
		if err == nil {
			return answers
		}
		n.silence = cmp.Or(context.Cause(ctx), err)
	}
	return slices.Repeat([]conn.Answer{{Err: n.silence}}, len(questions))
}

// refusal says why a server has refused a command, "" if it has not.
func refusal(err error, args ...any) string {
	right := fmt.Sprint(args[0])
	if right == "config" || right == "cluster" {
		right += fmt.Sprint("|", args[1])
	}
	switch {
	case err == nil:
		return ""
	case wire.HasCode(err, "NOPERM") && !strings.Contains(err.Error(), "permissions to access"): // not of a key or a channel
		return "the user lacks the right +" + right
	case strings.HasPrefix(strings.ToLower(err.Error()), "err unknown command"):
		return fmt.Sprintf("the server has no %s, or has renamed it", strings.ToUpper(fmt.Sprint(args[0])))
	}
	return oneLine(err)
}

func (n *node) readInfo(ctx context.Context) {
	text, missing := n.ask(ctx, "info")
	if n.infoMissing = missing; missing != "" {
		return
	}
	n.info = parseInfo(text)
	if n.info["cluster_enabled"] == "1" && !n.sharded { // a node of a cluster as a single server
		text, n.info["cluster-info"] = n.ask(ctx, "cluster", "info")
		n.info["cluster_size"] = parseInfo(text)["cluster_size"]
	}
}

func parseInfo(text any) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(wire.Text(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}

func (n *node) readConfig(ctx context.Context) {
	n.config, n.configMissing = map[string]string{}, "the server does not have it"
	for _, p := range parameters { // several in one command need Redis 7.0
		values, missing := n.ask(ctx, "config", "get", p)
		n.configMissing = cmp.Or(missing, n.configMissing)
		for _, value := range conn.Facts(values) {
			n.config[p] = wire.Text(value)
		}
	}
}

// observe measures the clock and the round trips. A drift needs two readings at least.
func (n *node) observe(ctx context.Context) {
	began := time.Now()
	var samples []sample
	for {
		asked := time.Since(began)
		answer, missing := n.ask(ctx, "time")
		answered := time.Since(began)
		if missing != "" {
			n.add("clock", Warn, "unknown: %s", missing)
			return
		}
		middle := (asked + answered) / 2
		samples = append(samples, sample{at: middle, rtt: answered - asked, offset: instant(answer).Sub(began.Add(middle))})
		if answered > n.e.cfg.Observe && len(samples) > 1 {
			break
		}
		select {
		case <-time.After(betweenSamples):
		case <-ctx.Done():
			n.silence = ctx.Err()
			return
		}
	}
	n.judgeClock(samples)
	n.judgeRoundTrips(samples)
}

// instant returns the time in the answer to TIME.
func instant(answer any) time.Time {
	parts, _ := answer.([]any)
	if len(parts) != 2 {
		return time.Time{}
	}
	seconds, _ := strconv.ParseInt(wire.Text(parts[0]), 10, 64)
	micros, _ := strconv.ParseInt(wire.Text(parts[1]), 10, 64)
	return time.Unix(seconds, micros*1000)
}

// betweenSamples is the pause between two readings of a clock.
const betweenSamples = 10 * time.Millisecond
