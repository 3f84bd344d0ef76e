package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const (
	// viewTimeout limits a question to one node, with the dial. After the first view, othersTimeout limits the wait for
	// the other views.
	viewTimeout   = 6 * time.Second
	othersTimeout = 100 * time.Millisecond
)

// A surveyor asks nodes for their views of the cluster. One goroutine at a time uses it.
type surveyor struct {
	opt   redis.Options         // options of each node, without an address
	lines map[string]*conn.Line // lines of the last survey, by address
}

// survey asks the nodes at these addresses, and returns the newest view.
func (s *surveyor) survey(ctx context.Context, asked []string) (*view, error) {
	type result struct {
		view *view
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	s.prepare(asked)
	results := make(chan result, len(asked))
	var all sync.WaitGroup
	for _, addr := range asked {
		all.Go(func() {
			v, err := s.view(ctx, addr)
			results <- result{v, err}
		})
	}
	defer all.Wait()
	defer cancel()
	var newest *view
	var failure error // preferably a permanent one
	var late <-chan time.Time
	for range asked {
		select {
		case r := <-results:
			switch {
			case r.err != nil && (failure == nil || wire.VerdictOf(r.err).Operator):
				failure = r.err
			case r.err != nil:
			case r.view.newerThan(newest):
				newest = r.view
			}
			if newest != nil && late == nil {
				late = time.After(othersTimeout)
			}
		case <-late:
			return newest, nil
		}
	}
	if newest == nil {
		return nil, failure
	}
	return newest, nil
}

// prepare makes a Line for each node to ask. A node of the last survey keeps its Line, whose dials may not have
// returned: as long as they hang, the node costs only a few dials.
func (s *surveyor) prepare(asked []string) {
	former := s.lines
	s.lines = map[string]*conn.Line{}
	for _, addr := range asked {
		l := former[addr]
		if delete(former, addr); l == nil {
			opt := s.opt
			opt.Addr = addr
			l = conn.NewLine(conn.Options{Redis: opt, Check: checkNode})
		}
		s.lines[addr] = l
	}
	for _, l := range former {
		l.Close()
	}
}

func (s *surveyor) close() {
	for _, l := range s.lines {
		l.Close()
	}
}

// view asks one node, which may be a replica, on a connection of its own.
func (s *surveyor) view(ctx context.Context, addr string) (*view, error) {
	l := s.lines[addr]
	answers := l.All(ctx, []conn.Command{askSlots.Command, askInfo.Command}, viewTimeout)
	l.Retire(l.Now())
	return readView(addr, answers[0], answers[1])
}

// checkNode reads the answer to HELLO of a node, which may be a replica.
func checkNode(hello map[string]any) error {
	major, _, _ := strings.Cut(wire.Text(hello["version"]), ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		return &conn.Refusal{Text: fmt.Sprintf("ERR the node has version %v; a cluster needs Redis 7.0 or later, for sharded messages", hello["version"])}
	}
	return nil
}
