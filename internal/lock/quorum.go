package lock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Quorum is the servers of a Client of NewQuorum.
type Quorum struct{ m *members }

// Quorum returns the servers of a quorum, nil for one server.
func (c *Client) Quorum() *Quorum {
	if m, ok := c.topology.(*members); ok {
		return &Quorum{m}
	}
	return nil
}

// The limits of the number of servers in a quorum.
const (
	minServers = 3
	maxServers = several.MaxServers
)

// NewQuorum returns a Client for several independent servers. list is the number of the list of servers,
// and longest the longest TTL of any lease on them.
func NewQuorum(servers []redis.UniversalClient, cfg Config, list int, longest time.Duration) (*Client, error) {
	if n := len(servers); n < minServers || n > maxServers || n%2 == 0 {
		return nil, Refuse("servers", "3, 5, 7 or 9 clients", strconv.Itoa(n)+" clients")
	}
	number, most := cmp.Or(list, 1), cmp.Or(longest, defaultMaxTTL)
	switch {
	case number < 1:
		return nil, Refuse("QuorumConfig.List", "0 (1) or positive", list)
	case most < minTTL || most > maxTTL || most%time.Millisecond != 0:
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
	counts, err := newServerMetrics(cfg.Registerer, targets)
	if err != nil {
		return nil, err
	}
	return open(cfg, nil, target{Options: targets[0]}, func(c *Client, config wire.Config) wire.Wire {
		m := newMembers(c, targets, counts, config, number, most)
		c.topology, c.servers = m, all
		return m.wire
	})
}

// Marker returns the key of the state of each server.
func (q *Quorum) Marker() string { return q.m.marker }

// List returns the name of the list of servers that the Client has. It may change.
func (q *Quorum) List() string { return q.m.name() }

// Admit says that the Client is going to acquire locks. Only then it lets servers in.
func (q *Quorum) Admit() { q.m.acquires.Store(true) }

// Counted returns a renewal that a package above sends to all servers. Each gives an answer of
// quorum_renew, but {1, n} instead of {1}. The one answer is the smallest n, see Noticer.
func (q *Quorum) Counted(a *Attempt, r wire.Request) wire.Request {
	count := countRenewal(r)
	return several.Counted(r, func(answers map[int]wire.Answer, n int) (one wire.Answer, decided bool) {
		one, decided = count(answers, n)
		if one.Value == int64(1) {
			one.Value = leastNotice(answers)
		}
		return one, decided
	}, a.trail)
}

// Majority returns how many servers are one.
func (q *Quorum) Majority() int { return quorum.Majority(len(q.m.targets)) }

// AskAll sends a request to all servers of a quorum, and retries it like Ask. r is called for
// each try, because the name of the list may change. It returns the
// answers that have arrived when a majority has answered. Answers of servers that grant
// nothing, see part_member.lua, do not count.
func (n *Name) AskAll(ctx context.Context, r func() wire.Request) (all []any, err error) {
	retry := n.c.newRetry(n.terms.timeout(), 2*n.terms.timeout())
	err = retry.Do(ctx, wire.MayRetry, func() error {
		left, err := n.c.topology.ready(ctx, retry.Timeout())
		if err != nil {
			return err
		}
		r := r()
		answer, err := n.c.wire.Send(ctx, n.keys.name, several.Counted(r, countAnswers(r), nil), left)
		all, _ = answer.([]any)
		return err
	})
	return all, err
}

// A View is what one server of a quorum answers to a request, and its state.
type View struct {
	Address string
	Answer  wire.Answer
	State   quorum.State
}

var errNoState = errors.New("lockcore: the server did not answer about its state")

// Views asks each server once. Short is the error if too few have answered as they should.
func (q *Quorum) Views(ctx context.Context, r wire.Request, within time.Duration) ([]View, error) {
	done := make(chan []View, 1)
	m := q.m
	if !m.c.Background(func(ctx context.Context) {
		views := make([]View, len(m.targets))
		for i, a := range m.wire.Each(ctx, func(int) wire.Request { return r }, within, within) {
			views[i] = View{Address: m.targets[i].Addr, Answer: a}
		}
		for i, s := range m.states(ctx, false, examineRest) {
			views[i].State = s
			if views[i].Answer.Err == nil && !s.Known {
				views[i].Answer.Err = errNoState
			}
		}
		done <- views
	}) {
		return nil, ErrClosed
	}
	select {
	case views := <-done:
		return views, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

// Short returns the error for too few answers. refused has the servers without one.
func (q *Quorum) Short(r wire.Request, refused map[int]wire.Answer) error {
	return shortage(r, refused, nil, len(q.m.targets))
}

func (m *members) kind(k mutexKind) Kind { return quorumKind{k, m} }

func (m *members) refusal(of Kind, terms *leaseTerms) error {
	switch of.(type) {
	case slotKind:
		return &noonlock.ConfigError{Package: "lockcore", Field: "the Client of a Semaphore", Value: "of NewQuorum", Rule: "of New: a majority of the servers does not bound the number of leases"}
	case ownedKind:
		return &noonlock.ConfigError{Package: "lockcore", Field: "the Client of a lock with owners", Value: "of NewQuorum", Rule: "of New: entries of owners cannot be counted across servers"}
	}
	if terms.ttl > m.longest {
		return Refuse("LeaseConfig.TTL", "at most QuorumConfig.MaxTTL ("+m.longest.String()+")", terms.ttl)
	}
	return nil
}

func (*members) trail() *several.Trail { return several.NewTrail() }

// lossOf: there is no ForceRelease.
func (m *members) lossOf(context.Context, *Attempt) error { return ErrLeaseLost }

// quorumKind is a mutex on several servers. Its scripts run on each of them, and the answers
// are counted.
type quorumKind struct {
	mutexKind
	of *members
}

// keys returns the lock, the tombstone and the marker.
func (k quorumKind) keys(a *Attempt) []any {
	return []any{&a.keys.lock, a.Tomb(), &k.of.marker}
}

func (k quorumKind) Acquire(a *Attempt, _ string) wire.Request {
	k.of.acquires.Store(true)
	a.mayBeStored.Store(true) // a minority may grant, whatever the answer is
	r := a.c.scripts.quorumAcquire.Call(k.keys(a), &a.value, &a.terms.ttlText, k.of.name())
	return several.Counted(r, countAcquire(r, a.value, k.of.distrusts), a.trail)
}

func (k quorumKind) Renewal(a *Attempt) wire.Request {
	r := a.c.scripts.quorumRenew.Call(k.keys(a), &a.value, &a.terms.ttlText, k.of.name(), strconv.FormatUint(a.token, 10))
	return several.Counted(r, countRenewal(r), a.trail)
}

func (k quorumKind) Release(a *Attempt, _ bool) wire.Request {
	call := func(tomb int64) wire.Request {
		channel := ""
		if a.token > 0 { // it was a lease, so others may wait
			channel = a.Channel("free", a.keys.name)
		}
		if k.record != "" {
			return a.c.scripts.quorumLeave.Call(append(k.keys(a)[:2], k.record), &a.value, tomb, channel, k.news)
		}
		return a.c.scripts.quorumLeave.Call(k.keys(a)[:2], &a.value, tomb, channel)
	}
	r := call(0)
	return several.Leaving(several.Counted(r, countLeave(r), a.trail), call(millis(a.TombTTL())))
}

// confirm commits the token of a grant to a majority. Only then it counts.
func (m *members) confirm(ctx context.Context, a *Attempt, r acquireReply, timeout time.Duration) (acquireReply, error) {
	a.token = r.token
	req := m.kind(mutexKind{}).Renewal(a)
	answer, err := a.c.wire.Send(ctx, a.keys.name, req, timeout)
	n, err := req.Number(answer, err)
	switch {
	case err != nil:
		a.noteFailure(err)
		return acquireReply{}, err
	case n != 1:
		return acquireReply{}, errors.Join(ErrNotAcquired, errOvertaken)
	}
	return r, nil
}
