package doctor

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
)

// A sample is one reading of a server's clock.
type sample struct {
	at     time.Duration // halfway between request and answer
	rtt    time.Duration
	offset time.Duration // server's clock minus ours
}

// estimateClock compares the fastest samples at the beginning and at the end. A fast sample has the smallest error.
func estimateClock(samples []sample) (e estimate) {
	fastest := func(some []sample) sample {
		return slices.MinFunc(some, func(a, b sample) int { return cmp.Compare(a.rtt, b.rtt) })
	}
	third := max(1, len(samples)/3)
	first, last := fastest(samples[:third]), fastest(samples[len(samples)-third:])
	e.offset, e.offsetError = last.offset, last.rtt/2
	if between := last.at - first.at; between > 0 {
		e.drift = float64(last.offset-first.offset) / float64(between)
		e.driftError = float64(first.rtt+last.rtt) / 2 / float64(between)
	}
	return e
}

const (
	sampleInterval = 10 * time.Millisecond

	// maxOffset is the difference from the server's clock above which ticks are noticeably early or
	// late.
	maxOffset = time.Second

	// driftFails is the drift that uses up the margin of a lease. A sound clock drifts by less than
	// 0.01 %, and chrony slews it by up to 0.05 %; driftWarns is above both.
	driftWarns, driftFails = 0.002, 0.01 // 0.2 % and 1 %
)

// observe measures the clock and the round trips. A drift needs two samples at least.
func (n *node) observe(ctx context.Context) {
	began := time.Now()
	var samples []sample
	for {
		sent := time.Since(began)
		answer, problem := n.ask(ctx, "time")
		answered := time.Since(began)
		if problem != "" {
			n.add("clock", Warn, "unknown: %s", problem)
			return
		}
		middle := (sent + answered) / 2
		samples = append(samples, sample{at: middle, rtt: answered - sent, offset: instant(answer).Sub(began.Add(middle))})
		if answered > n.cfg.Observe && len(samples) > 1 {
			break
		}
		select {
		case <-time.After(sampleInterval):
		case <-ctx.Done():
			n.silence = ctx.Err()
			return
		}
	}
	n.judgeClock(samples)
	n.judgeRoundTrips(samples)
}

// judgeClock compares the clock of the server with ours. Either clock may be wrong.
func (n *node) judgeClock(samples []sample) {
	e := estimateClock(samples)
	n.clock = &e
	verdict := OK
	certain := math.Abs(e.drift) - e.driftError
	switch {
	case certain > driftFails:
		verdict = Fail
	case certain > driftWarns, e.offset.Abs()-e.offsetError > maxOffset:
		verdict = Warn
	}
	relation := "ahead of"
	if e.offset < 0 {
		relation = "behind"
	}
	n.add("clock", verdict, "%s %s the clock of this machine (± %s); drift %+.3f %% (± %.3f %%)",
		short(e.offset.Abs()), relation, short(e.offsetError), 100*e.drift, 100*e.driftError)
}

// judgeRoundTrips compares the round trips with the TTL. A request times out after a third of the TTL,
// and a renewal is sent again after a 48th of it.
func (n *node) judgeRoundTrips(samples []sample) {
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s.rtt)
	}
	slices.Sort(all)
	p50, p99, ttl := all[(len(all)-1)/2], all[(len(all)*99-1)/100], n.cfg.TTL
	verdict := OK
	switch {
	case p50 > ttl/3:
		verdict = Fail
	case p99 > ttl/48:
		verdict = Warn
	}
	n.add("round trip", verdict, "p50 %s, p99 %s of %s; leases have a TTL of %s", short(p50), short(p99), count(len(all), "request"), ttl)
}

// compareClocks returns the check of the differences between the clocks of servers.
func compareClocks(nodes []*node, ttl time.Duration) []Check {
	var known []*node
	for _, n := range nodes {
		if n.clock != nil {
			known = append(known, n)
		}
	}
	if len(known) < 2 {
		return nil
	}
	byOffset := func(a, b *node) int { return cmp.Compare(a.clock.offset, b.clock.offset) }
	first, last := slices.MinFunc(known, byOffset), slices.MaxFunc(known, byOffset)
	difference, errorBound := last.clock.offset-first.clock.offset, first.clock.offsetError+last.clock.offsetError
	verdict, most := OK, lease.Margin(ttl) // the margin that each lease keeps for the clocks
	if difference-errorBound > most {
		verdict = Warn
	}
	return []Check{checkOf("", "clock", verdict, "the clocks of the servers differ by %s (± %s); at most %s for a TTL of %s",
		short(difference), short(errorBound), most, ttl)}
}
