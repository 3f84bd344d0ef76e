package lock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// NewQuorum returns a Client for several independent servers. list is the number of the list of servers,
// and longest the longest TTL of any lease on them.
func NewQuorum(servers []redis.UniversalClient, cfg Config, list int, longest time.Duration) (*Client, error) {
	if n := len(servers); n < 3 || n > several.MaxServers || n%2 == 0 {
		return nil, Refuse("servers", "3, 5, 7 or 9 clients", strconv.Itoa(n)+" clients")
	}
	number, limit := cmp.Or(list, 1), cmp.Or(longest, 15*time.Second)
	switch {
	case number < 1:
		return nil, Refuse("QuorumConfig.List", "0 (1) or positive", list)
	case limit < minTTL || limit > maxTTL || limit%time.Millisecond != 0:
		return nil, Refuse("QuorumConfig.MaxTTL", "0 (15s) or whole milliseconds from 100ms to 24h", longest)
	case cfg.MinReplicas != 0:
		return nil, Refuse("Config.MinReplicas", "0 for NewQuorum, whose servers have no replicas", cfg.MinReplicas)
	case cfg.LockDelay != 0:
		return nil, Refuse("Config.LockDelay", "0: a server of a quorum grants nothing for MaxTTL after a loss of data", cfg.LockDelay)
	case cfg.TokenRetention != 0:
		return nil, Refuse("Config.TokenRetention", "0: a server of a quorum keeps one token for all names, for ever", cfg.TokenRetention)
	}
	targets, all := make([]redis.Options, len(servers)), make([]Server, len(servers))
	for i, rdb := range servers {
		field := "servers[" + strconv.Itoa(i) + "]"
		target, err := targetOf(field, rdb)
		if err != nil {
			return nil, err
		}
		if target.seeds != nil {
			return nil, Refuse(field, "a *redis.Client: a cluster moves keys between servers, and they would count as lost", "a *redis.ClusterClient")
		}
		targets[i], all[i].Options = target.Options, target.Options
	}
	metrics, err := members.NewMetrics(cfg.Registerer, targets)
	if err != nil {
		return nil, err
	}
	c, err := newClient(cfg, nil, target{Options: targets[0]})
	if err != nil {
		return nil, err
	}
	c.quorum = members.New(members.Config{
		Servers: targets, List: number, MaxTTL: limit,
		Marker: c.keys.marker(), State: c.scripts.quorumState, Join: c.scripts.quorumJoin,
		Background: c.Background, Closing: c.closing,
	}, metrics, c.wireConfig())
	c.servers = all
	c.start(quorumTopology{c.quorum}, c.quorum.Wire)
	return c, nil
}

// CountedRenewal returns the renewal of a Kind above, for all servers of a quorum. Each server answers like
// quorum_renew, but {1, n} instead of {1}. The answer of the whole request is the smallest n, see Noticer.
func (a *Attempt) CountedRenewal(r wire.Request) wire.Request {
	return several.Counted(r, members.CountRenewal(r), a.trail)
}

// AskAll sends a request to all servers of a quorum, and retries it like Ask. newRequest is called for
// each try, because the name of the list may change. AskAll returns as soon as a majority has answered, with these
// answers. Answers of servers that grant nothing do not count.
func (n *Name) AskAll(ctx context.Context, newRequest func() wire.Request) (all []any, err error) {
	retry := n.c.newRetry(n.terms.timeout(), 2*n.terms.timeout())
	err = retry.Do(ctx, wire.MayRetry, func() error {
		left, err := n.c.topology.ready(ctx, retry.Timeout())
		if err != nil {
			return err
		}
		r := newRequest()
		answer, err := n.c.wire.Send(ctx, n.keys.name, several.Counted(r, members.CountAnswers(r), nil), left)
		all, _ = answer.([]any)
		return err
	})
	return all, err
}

// quorumTopology is the topology of NewQuorum: a majority decides.
type quorumTopology struct{ *members.Quorum }

func (t quorumTopology) kind(record, channel string) Kind {
	return quorumKind{mutexKind{record, channel}, t.Quorum}
}

func (t quorumTopology) refusal(k Kind, terms *leaseTerms) error {
	switch k.(type) {
	case slotKind:
		return Refuse("the Client of a Semaphore", "of New: a majority of the servers does not bound the number of leases", "of NewQuorum")
	case ownedKind:
		return Refuse("the Client of a lock with owners", "of New: entries of owners cannot be counted across servers", "of NewQuorum")
	}
	if terms.ttl > t.MaxTTL {
		return Refuse("LeaseConfig.TTL", "at most QuorumConfig.MaxTTL ("+t.MaxTTL.String()+")", terms.ttl)
	}
	return nil
}

func (t quorumTopology) ready(ctx context.Context, within time.Duration) (left time.Duration, err error) {
	if left, err = t.Ready(ctx, within); err != nil && errors.Is(err, ctx.Err()) {
		err = ended(ctx)
	}
	return left, err
}

// lossReason has no ForcedError, as a quorum has no ForceRelease.
func (quorumTopology) lossReason(context.Context, *Attempt) error { return ErrLeaseLost }

// quorumKind is a mutex on several servers. Its scripts run on each server, and the answers are counted.
type quorumKind struct {
	mutexKind
	quorum *members.Quorum
}

func (k quorumKind) keys(a *Attempt) []any {
	return []any{&a.keys.lock, a.Tomb(), &k.quorum.Marker}
}

func (k quorumKind) Acquire(a *Attempt, _ string) wire.Request {
	k.quorum.Admit()
	a.mayBeStored.Store(true) // a minority may grant although the answer of the majority is no grant
	r := a.c.scripts.quorumAcquire.Call(k.keys(a), &a.value, &a.terms.ttlText, k.quorum.List())
	return several.Counted(r, members.CountAcquire(r, a.value, k.quorum.Distrusts), a.trail)
}

func (k quorumKind) Renewal(a *Attempt) wire.Request {
	r := a.c.scripts.quorumRenew.Call(k.keys(a), &a.value, &a.terms.ttlText, k.quorum.List(), strconv.FormatUint(a.token, 10))
	return several.Counted(r, members.CountRenewal(r), a.trail)
}

func (k quorumKind) Release(a *Attempt, _ bool) wire.Request {
	call := func(tomb int64) wire.Request {
		channel := ""
		if a.token > 0 { // the attempt had a lease, so clients may wait for its end
			channel = a.Channel("free", a.keys.name)
		}
		if k.record != "" {
			return a.c.scripts.quorumLeave.Call(append(k.keys(a)[:2], k.record), &a.value, tomb, channel, k.news)
		}
		return a.c.scripts.quorumLeave.Call(k.keys(a)[:2], &a.value, tomb, channel)
	}
	r := call(0)
	return several.Leaving(several.Counted(r, members.CountRelease(r), a.trail), call(millis(a.TombTTL())))
}

// confirm commits the token of a grant to a majority. The grant counts only after that.
func (t quorumTopology) confirm(ctx context.Context, a *Attempt, r acquireReply, timeout time.Duration) (acquireReply, error) {
	a.token = r.token
	req := t.kind("", "").Renewal(a)
	answer, err := a.c.wire.Send(ctx, a.keys.name, req, timeout)
	n, err := req.Number(answer, err)
	switch {
	case err != nil:
		a.recordFailure(err)
		return acquireReply{}, err
	case n != 1:
		return acquireReply{}, members.ErrOvertaken
	}
	return r, nil
}

const (
	// firstPause and longestPause are means of the random pauses between two tries. A pause is between 0 and twice
	// its mean.
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond

	// splitPause limits the random pause after a message. All waiters receive the message at the same time. Without a
	// pause, the servers could be split: each waiter gets a minority. The limit doubles after each split.
	splitPause = 4 * time.Millisecond
)

// contend acquires the lock of a quorum. There is no queue: each try is a new attempt, which is
// undone if it fails. As in a queue, the wait continues during an outage. last is the last reply with a holder.
func (w *waiter) contend(ctx context.Context, k Kind) (lease *Lease, last acquireReply, err error) {
	n := w.Name
	lease, last, err = n.tryOnce(ctx, k, n.terms.timeout())
	if lease != nil || err != nil && !overtaken(err) && (!wire.MayRetry(err) || ctx.Err() != nil) {
		return lease, last, err
	}
	waiting := n.c.metrics.kind(k.Label()).queue().waiting
	waiting.Inc()
	defer waiting.Dec()
	freed := retry.NewSignal()
	defer n.c.wire.Messages(n.keys.name).Watch(n.Channel("free", n.keys.name), func(string) { freed.Send() })()
	pauses, split := retry.Growing(firstPause, longestPause, 2, 1), splitPause
	for {
		pause := pauses.NextBackOff()
		if errors.Is(err, members.ErrOvertaken) || errors.Is(err, members.ErrAhead) { // without a holder, there may be no message
			split = min(2*split, longestPause)
			pause = rand.N(split) //nolint:gosec // jitter
		}
		timer, due := time.NewTimer(pause), time.Now().Add(pause)
		select {
		case <-timer.C:
		case <-freed: // the message may be forged, and must not delay the try
			pauses.Reset()
			retry.Sleep(ctx, min(rand.N(split), time.Until(due)), n.c.closing) //nolint:gosec // jitter
		case <-ctx.Done():
		case <-n.c.closing:
		}
		timer.Stop()
		if ctx.Err() != nil { // do not return err, which is the error of an earlier try
			return nil, last, ended(ctx)
		}
		var r acquireReply
		lease, r, err = n.tryOnce(ctx, k, n.terms.timeout())
		if r.holder != "" {
			last = r
			select {
			case <-w.tick():
				if w.isDue() {
					w.logHolder(r)
				}
			default:
			}
		}
		switch {
		case lease != nil:
			return lease, last, nil
		case err == nil, overtaken(err), wire.MayRetryLater(err) && ctx.Err() == nil:
		default:
			return nil, last, err
		}
	}
}

// overtaken reports whether a try failed for one of these reasons: other clients tried at the same time, its
// validity was over before the majority had answered, or the servers wait after a loss of data.
func overtaken(err error) bool {
	short, _ := errors.AsType[*wire.NoQuorumError](err)
	return errors.Is(err, members.ErrOvertaken) || errors.Is(err, members.ErrAhead) || errors.Is(err, errSlowServer) || short != nil && short.Answered && !short.Permanent
}

// A Quorum has the servers of a Client of NewQuorum.
type Quorum = members.Quorum

// Quorum returns the servers of a quorum, nil for one server.
func (c *Client) Quorum() *Quorum { return c.quorum }

// RequireOneServer returns OneServerError for a Client of a quorum, and nil for other Clients.
func (c *Client) RequireOneServer(what string) error {
	if c.quorum == nil {
		return nil
	}
	return OneServerError(what)
}

// OneServerError returns the *noonlock.ConfigError of an operation or a type, what, that a quorum does not support.
func OneServerError(what string) error {
	return Refuse("the Client of "+what, "of New: the servers of a quorum have different views; use New with one of them", "of NewQuorum")
}
