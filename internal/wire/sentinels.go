package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// Sentinels name the primary: https://redis.io/docs/latest/develop/reference/sentinel-clients/. All are asked at once,
// each on one connection, which is kept. So a silent Sentinel stops nothing. Each failover has a greater epoch than the
// failover before, and the answer with the greatest epoch counts, because a Sentinel that was cut off names an old
// primary. Without epochs, a majority of the answers counts.
//
// # Failures
//
//	a Sentinel is silent       one question waits for it. Then the others suffice until it answers again
//	it names an old primary    another Sentinel has a greater epoch, or an earlier answer had
//	all have a smaller epoch   they were set up again: a majority of them counts
//	the newest answer is       its primary is a replica, or cannot be reached: the primary that a majority names is tried
//	wrong                      next
//	an answer has no epoch     a majority of the answers counts, as some may be old. After an answer with an epoch, a
//	                           majority of all Sentinels counts
//	some refuse                the others suffice
type Sentinels struct {
	master  string
	all     []*sentinel
	timeout time.Duration // timeout of one question
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	epoch int64 // epoch of the last result, -1 before it
}

type sentinel struct {
	addr   string
	line   *conn.Line
	silent bool // the last question timed out; Sentinels.mu guards it
}

// A View is the answer of one Sentinel.
type View struct {
	Sentinel string
	Primary  string
	Epoch    int64 // epoch of Primary, -1 if it is unknown
	Err      error // reason why Primary is empty
}

// maxSentinelTimeout limits one question. A dial of the primary follows.
const maxSentinelTimeout = time.Second

// NewSentinels returns the Sentinels at these addresses, which watch the primary of a name. They get the user and
// password in opt.
func NewSentinels(opt redis.Options, addrs []string, master string) *Sentinels {
	s := &Sentinels{master: master, timeout: maxSentinelTimeout, epoch: -1}
	if t := opt.DialTimeout / 2; t > 0 {
		s.timeout = min(t, maxSentinelTimeout)
	}
	opt.DB = 0
	for _, addr := range addrs {
		opt.Addr = addr
		s.all = append(s.all, &sentinel{addr: addr, line: conn.NewLine(conn.Options{Redis: opt})})
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends the connections. s may be nil.
func (s *Sentinels) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	for _, one := range s.all {
		one.line.Close()
	}
	s.wg.Wait()
}

// Primary asks all Sentinels. It returns all views and the address of the primary. If a majority names another address,
// it follows as the second one.
func (s *Sentinels) Primary(ctx context.Context) (views []View, addrs []string, err error) {
	views = s.views(ctx)
	if s.ctx.Err() != nil {
		return views, nil, net.ErrClosed
	}
	votes, named, dated := map[string]int{}, 0, true
	most := func(v View) bool { return 2*votes[v.Primary] > len(s.all) }
	for _, v := range views {
		if v.Err == nil {
			votes[v.Primary]++
			named++
			dated = dated && v.Epoch >= 0
		}
	}
	newer := func(v, than View) bool { // with epochs, votes only decide between equal epochs
		byEpoch, byVotes := cmp.Compare(v.Epoch, than.Epoch), cmp.Compare(votes[v.Primary], votes[than.Primary])
		if !dated {
			return cmp.Or(byVotes, byEpoch) > 0
		}
		return cmp.Or(byEpoch, byVotes) > 0
	}
	var newest, major View
	for _, v := range views {
		switch {
		case v.Err != nil:
			continue
		case newest.Primary == "" || newer(v, newest):
			newest = v
		}
		if most(v) {
			major = v
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case newest.Primary == "":
		return views, nil, noPrimary(views)
	case !dated && 2*votes[newest.Primary] <= named:
		return views, nil, fmt.Errorf("lockcore: the Sentinels name different primaries, among them %s, and not all of them tell the epoch (SENTINEL MASTER)", newest.Primary)
	case newest.Epoch < s.epoch && !most(newest):
		return views, nil, fmt.Errorf("lockcore: the Sentinels that answer know only epoch %d, with the primary %s; epoch %d was seen before", newest.Epoch, newest.Primary, s.epoch)
	}
	if newest.Epoch >= 0 {
		s.epoch = newest.Epoch
	}
	if major.Primary != "" && major.Primary != newest.Primary {
		return views, []string{newest.Primary, major.Primary}, nil
	}
	return views, []string{newest.Primary}, nil
}

// noPrimary returns the error if no Sentinel has named a primary. The error is permanent if all errors of the Sentinels
// are.
func noPrimary(views []View) error {
	var all []string
	var last error
	for _, v := range views {
		all = append(all, fmt.Sprintf("%s: %v", v.Sentinel, v.Err))
		if last == nil || VerdictOf(NotSent(last)).Operator {
			last = v.Err
		}
	}
	if !VerdictOf(NotSent(last)).Operator {
		last = nil
	}
	return &noSentinelError{strings.Join(all, "; "), last}
}

type noSentinelError struct {
	all       string
	permanent error // optional cause
}

func (e *noSentinelError) Error() string { return "lockcore: no Sentinel names a primary: " + e.all }
func (e *noSentinelError) Unwrap() error { return e.permanent }

// views asks all Sentinels. It waits for the Sentinels that were not silent last time, and for at least one answer.
func (s *Sentinels) views(ctx context.Context) []View {
	type result struct {
		i    int
		view View
	}
	views, expected := make([]View, len(s.all)), make([]bool, len(s.all))
	results := make(chan result, len(s.all))
	left, named := 0, 0
	s.mu.Lock()
	for i, one := range s.all {
		views[i] = View{Sentinel: one.addr, Err: NoAnswer(s.timeout)}
		if expected[i] = !one.silent; expected[i] {
			left++
		}
		if s.ctx.Err() == nil {
			s.wg.Go(func() { results <- result{i, s.ask(one)} })
		}
	}
	s.mu.Unlock()
	var end <-chan time.Time
	for range s.all {
		select {
		case r := <-results:
			if views[r.i] = r.view; expected[r.i] {
				left--
			}
			if r.view.Err == nil {
				named++
			}
			switch {
			case left > 0 || named == 0:
			case 2*named > len(s.all):
				return views
			default: // a silent Sentinel may answer again
				end = time.After(s.timeout / 10)
			}
		case <-end:
			return views
		case <-ctx.Done():
			return views
		case <-s.ctx.Done():
			return views
		}
	}
	return views
}

func (s *Sentinels) ask(one *sentinel) View {
	answers := one.line.All(s.ctx, []conn.Command{
		conn.Plain("sentinel", "get-master-addr-by-name", s.master), conn.Plain("sentinel", "master", s.master),
	}, s.timeout)
	v := View{Sentinel: one.addr, Err: answers[0].Err}
	late, silent := errors.AsType[*conn.NoAnswerError](v.Err)
	s.mu.Lock()
	one.silent = silent
	s.mu.Unlock()
	unsent, is := errors.AsType[*conn.UnsentError](v.Err)
	switch {
	case silent:
		v.Err = late
	case is:
		v.Err = unsent.Err
	case v.Err != nil:
	case answers[0].Value == nil:
		v.Err = &conn.Refusal{Text: "the Sentinels know no primary of the name in MasterName"}
	default:
		at, _ := answers[0].Value.([]any)
		if len(at) != 2 {
			v.Err = errors.New("lockcore: an unexpected answer of a Sentinel")
			break
		}
		// An emulation may lack SENTINEL MASTER, and a user the right to it.
		epoch, err := strconv.ParseInt(Text(conn.Pairs(answers[1].Value)["config-epoch"]), 10, 64)
		if err != nil {
			epoch = -1
		}
		v.Primary, v.Epoch = net.JoinHostPort(Text(at[0]), Text(at[1])), epoch
	}
	return v
}
