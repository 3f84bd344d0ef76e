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

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
	"github.com/noonlock/noonlock/lockcore"
)

type node struct {
	cfg    Config
	quorum bool
	client *lockcore.Client
	name   string // address
	dialer *conn.Dialer
	pipe   *conn.Conn // nil until open

	sentinel  bool   // the address comes from Sentinels
	sharded   bool   // the server is a node of a cluster
	isReplica bool   // the server is a replica of a cluster
	isWrong   bool   // a replica that should be a primary
	scratch   string // a name whose keys this server has

	info          map[string]string // nil if INFO was refused
	infoMissing   string            // why INFO was refused
	config        map[string]string // known parameters
	configMissing string            // why a parameter is unknown

	replicas int
	clock    *estimate         // nil until judgeClock
	member   map[string]string // nil until readMember
	silence  error             // the error of an unanswered question

	connection Check
	checks     []Check
}

// An estimate is a clock as samples show it. The errors are bounds: the error of a sample is at most half
// of its round trip.
type estimate struct {
	offset, offsetError time.Duration
	drift, driftError   float64 // relative speed, compared with ours
}

// add records a check, unless the server has not answered a question.
func (n *node) add(check string, verdict Verdict, format string, args ...any) {
	if n.silence == nil {
		n.checks = append(n.checks, checkOf(n.name, check, verdict, format, args...))
	}
}

func (n *node) open(ctx context.Context) { n.pipe, n.silence = n.connect(ctx) }

func (n *node) connect(ctx context.Context) (*conn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	p, err := n.dialer.Connect(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(wire.NoAnswer(n.cfg.Timeout), err)
	}
	return p, err
}

// ask asks a question. Without an answer, missing is the reason.
func (n *node) ask(ctx context.Context, args ...any) (answer any, missing string) {
	a := n.askAll(ctx, conn.Command{Args: args})[0]
	return a.Value, refusal(a.Err, args...)
}

// askAll asks questions in one round trip. After silence, it asks nothing.
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

// refusal returns the reason for which a server has refused a command, or "".
func refusal(err error, args ...any) string {
	right := fmt.Sprint(args[0])
	if right == "config" || right == "cluster" {
		right += fmt.Sprint("|", args[1])
	}
	switch {
	case err == nil:
		return ""
	case wire.HasCode(err, "NOPERM") && !strings.Contains(err.Error(), "permissions to access"): // on a command, not on a key or a channel
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
	if n.info["cluster_enabled"] == "1" && !n.sharded { // a cluster's node that was given alone
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

func instant(answer any) time.Time {
	parts, _ := answer.([]any)
	if len(parts) != 2 {
		return time.Time{}
	}
	seconds, _ := strconv.ParseInt(wire.Text(parts[0]), 10, 64)
	micros, _ := strconv.ParseInt(wire.Text(parts[1]), 10, 64)
	return time.Unix(seconds, micros*1000)
}
