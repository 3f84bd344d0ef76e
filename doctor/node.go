package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
	"github.com/noonlock/noonlock/lockcore"
)

// A node is one of the examined servers, and what is known about it. One goroutine uses a node.
type node struct {
	cfg    Config
	quorum bool
	client *lockcore.Client
	addr   string
	dialer *conn.Dialer
	pipe   *conn.Conn // nil until open

	sentinel       bool   // the address comes from Sentinels
	sharded        bool   // the client is one of a cluster, so the server is a node of it
	clusterReplica bool   // the cluster lists the server as a replica
	notPrimary     bool   // a replica at the address of a primary
	scratch        string // lock name for trials, whose keys are on this server

	info          map[string]string // nil if INFO was refused
	infoProblem   string            // why INFO was refused, or ""
	config        map[string]string // known parameters
	configProblem string            // why a parameter is unknown

	replicas int               // connected to this primary
	clock    *estimate         // nil until judgeClock
	member   map[string]string // stored membership in the quorum; nil until readMember
	silence  error             // the error of an unanswered question

	connection Check
	checks     []Check
}

// An estimate compares the server's clock with ours. Each error is an upper bound: the error of a sample is at
// most half of its round trip.
type estimate struct {
	offset, offsetError time.Duration // server's clock minus ours
	drift, driftError   float64       // growth of offset per unit of time
}

// add records a check. It records nothing after an unanswered question.
func (n *node) add(check string, verdict Verdict, format string, args ...any) {
	if n.silence == nil {
		n.checks = append(n.checks, checkOf(n.addr, check, verdict, format, args...))
	}
}

func (n *node) open(ctx context.Context) { n.pipe, n.silence = n.connect(ctx) }

func (n *node) connect(ctx context.Context) (*conn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	p, err := n.dialer.Connect(ctx)
	// The Dialer may reach the end of the time before ctx does.
	if timeout := net.Error(nil); err != nil && (ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout()) {
		err = errors.Join(wire.NoAnswer(n.cfg.Timeout), err)
	}
	return p, err
}

// ask asks a question. problem is why there is no answer, or "".
func (n *node) ask(ctx context.Context, args ...any) (answer any, problem string) {
	a := n.askAll(ctx, conn.Command{Args: args})[0]
	return a.Value, refusal(a.Err, args...)
}

// askAll asks questions in one round trip. After an unanswered question, it asks nothing.
func (n *node) askAll(ctx context.Context, questions ...conn.Command) []conn.Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Timeout, wire.NoAnswer(n.cfg.Timeout))
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

// refusal returns why a server has refused the command args, or "" if err is nil.
func refusal(err error, args ...any) string {
	right := fmt.Sprint(args[0])
	if right == "config" || right == "cluster" {
		right += fmt.Sprint("|", args[1])
	}
	switch {
	case err == nil:
		return ""
	case wire.HasCode(err, "NOPERM") && !strings.Contains(err.Error(), "permissions to access"): // the user may not use the command; otherwise, a key or a channel is refused
		return "the user lacks the right +" + right
	case strings.HasPrefix(strings.ToLower(err.Error()), "err unknown command"):
		return fmt.Sprintf("the server has no %s, or has renamed it", strings.ToUpper(fmt.Sprint(args[0])))
	}
	return oneLine(err)
}

func (n *node) readInfo(ctx context.Context) {
	text, problem := n.ask(ctx, "info")
	if n.infoProblem = problem; problem != "" {
		return
	}
	n.info = parseInfo(text)
	if n.info["cluster_enabled"] == "1" && !n.sharded { // a node of a cluster, and the client is not one of a cluster
		text, n.info["cluster-problem"] = n.ask(ctx, "cluster", "info")
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

func instant(answer any) time.Time {
	parts, _ := answer.([]any)
	if len(parts) != 2 {
		return time.Time{}
	}
	seconds, _ := strconv.ParseInt(wire.Text(parts[0]), 10, 64)
	micros, _ := strconv.ParseInt(wire.Text(parts[1]), 10, 64)
	return time.Unix(seconds, micros*1000)
}
