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

// A page is what Found is called with.
type page struct {
	keys     []string
	searched int
}

// Scan searches all primaries at the same time. It may miss the keys of a slot that moves
// during the call.
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
	scan.Within -= time.Since(began) // of the whole call, if no server answers
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

// Nodes refreshes the slot table, and returns the nodes by address: a primary with a name that it has, a replica with
// none.
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

// primaries refreshes the slot table, as nothing else shows that another primary has got slots,
// and returns the servers of all slots. If a slot has no server, it also returns an error.
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
