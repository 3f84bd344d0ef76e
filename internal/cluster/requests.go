package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// maxSends limits how often one request is sent.
const maxSends = 5

// ErrFormerServer says that an answer was ignored, because the name has moved.
var ErrFormerServer = errors.New("lockcore: the name has moved to another server")

// Send sends a request to the server of the name. After the answer MOVED, it sends the request to the new server of the
// name within the timeout, if meanwhile the slot has another server or its server was replaced.
func (c *Cluster) Send(ctx context.Context, name string, r wire.Request, timeout time.Duration) (any, error) {
	deadline := time.Now().Add(timeout)
	slot := slotOf(name)
	r = r.InCluster()
	for tries := 1; ; tries++ {
		s, err := c.serverOf(ctx, slot, deadline)
		if err != nil {
			return nil, err
		}
		replaced := s.Replaced()
		answer, err := s.Send(ctx, name, r, time.Until(deadline))
		moved := c.owner(slot) != s
		switch {
		case (err == nil || errors.Is(err, wire.ErrNotReplicated)) && moved:
			return nil, errors.Join(wire.ErrUnknown, ErrFormerServer)
		case errors.Is(err, wire.ErrClosed) && moved: // s was closed, as it has no slots any more: try the new server
		case !wire.HasCode(err, "MOVED") || !moved && s.Replaced() == replaced || tries == maxSends || !time.Now().Before(deadline):
			return answer, wire.Redirected(err)
		}
	}
}

// serverOf returns the server of a slot. If the slot has no server, it waits until the slot table was read.
func (c *Cluster) serverOf(ctx context.Context, slot int, deadline time.Time) (*wire.Server, error) {
	for tries := 0; ; tries++ {
		c.mu.Lock()
		s, closed, refreshed, failure := c.owners[slot], c.closed, c.refreshed, c.failure
		c.mu.Unlock()
		switch {
		case closed:
			return nil, wire.ErrClosed
		case s != nil:
			return s, nil
		case tries > 0 && failure != nil:
			return nil, failure
		case tries > 0:
			return nil, wire.NotSent(fmt.Errorf("lockcore: no node of the cluster serves slot %d", slot))
		}
		c.refresh()
		bounded, cancel := context.WithDeadline(ctx, deadline)
		select {
		case <-refreshed:
		case <-bounded.Done():
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(ctx.Err(), failure)
		case !time.Now().Before(deadline):
			return nil, wire.NotSent(errors.New("lockcore: no node of the cluster has answered in time"))
		}
	}
}

// Renewals returns the stream of the server of a name.
func (c *Cluster) Renewals(name string) wire.Renewals {
	if s := c.owner(slotOf(name)); s != nil {
		return s.Renewals(name)
	}
	return unknownServer{}
}

// An unknownServer is the stream of a name whose server is not known. All requests fail.
type unknownServer struct{}

func (unknownServer) Send(_ context.Context, requests []wire.Request) []wire.Answer {
	answers := make([]wire.Answer, len(requests))
	for i := range answers {
		answers[i].Err = wire.NotSent(errors.New("lockcore: the server of the name is not known"))
	}
	return answers
}

// A page contains the arguments of Found.
type page struct {
	keys     []string
	searched int
}

// Scan searches all primaries at the same time. It may miss the keys of a slot that moves during the call.
func (c *Cluster) Scan(ctx context.Context, scan wire.Scan) error {
	began := time.Now()
	var servers []*wire.Server
	retry := wire.NewRetry(scan.Each, scan.Within/2, nil)
	err := retry.Do(ctx, wire.MayRetry, func() (err error) {
		servers, err = c.primaries(ctx, time.Now().Add(retry.Timeout()))
		return err
	})
	if servers == nil {
		return err
	}
	scan.Within -= time.Since(began) // so that the whole call ends within it, even if no server answers
	ctx, cancel := context.WithCancel(ctx)
	pages, left := make(chan page), make(chan struct{})
	defer func() { // even if Found panics
		close(left)
		cancel()
	}()
	found := scan.Found
	scan.Found = func(keys []string, searched int) {
		select {
		case pages <- page{keys, searched}:
		case <-left:
		}
	}
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { errs[i] = s.Scan(ctx, scan) })
	}
	go func() {
		all.Wait()
		close(pages)
	}()
	for p := range pages {
		found(p.keys, p.searched)
	}
	return errors.Join(append(errs, err)...)
}

// Nodes refreshes the slot table and returns the nodes by address, each with a name whose slot it serves, or with "" if
// it is a replica.
func (c *Cluster) Nodes(ctx context.Context, within time.Duration) (map[string]string, error) {
	servers, err := c.primaries(ctx, time.Now().Add(within))
	if servers == nil {
		return nil, err
	}
	nodes := map[string]string{}
	for _, s := range servers {
		nodes[s.Address()], _ = c.tag(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr := range c.replicas {
		nodes[addr] = ""
	}
	return nodes, nil
}

// primaries returns the servers of all slots. It first refreshes the slot table, which may lack a new primary. If a
// slot has no server, it also returns an error.
func (c *Cluster) primaries(ctx context.Context, until time.Time) ([]*wire.Server, error) {
	c.mu.Lock()
	refreshed := c.refreshed
	c.mu.Unlock()
	c.refresh()
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-refreshed:
	case <-bounded.Done():
	case <-c.ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var servers []*wire.Server
	unserved := slots
	for slot, s := range c.owners {
		switch {
		case s == nil:
			unserved = min(unserved, slot)
		case !slices.Contains(servers, s):
			servers = append(servers, s)
		}
	}
	switch {
	case c.closed:
		return nil, wire.ErrClosed
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), c.failure)
	case servers == nil && c.failure != nil:
		return nil, c.failure
	case unserved < slots:
		return servers, wire.NotSent(fmt.Errorf("lockcore: no node of the cluster serves slot %d", unserved))
	}
	return servers, nil
}
