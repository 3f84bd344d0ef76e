package members

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

var (
	// ErrAhead means that this attempt has more servers than the others. The others give way within a round trip.
	ErrAhead = errors.New("lockcore: other clients try at the same time")
	// ErrOvertaken means that another attempt has more servers.
	ErrOvertaken = errors.New("lockcore: another client acquired the lock at the same time")
)

// CountAcquire counts the answers to quorum_acquire. Grants of distrusted servers do not count. me is the value of the
// attempt. The result has the form of an answer to mutex_acquire.
func CountAcquire(r wire.Request, me string, distrusts func(server int) bool) several.Count {
	return func(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
		votes := votesOf(answers)
		for i, v := range votes {
			if v.Code == quorum.Granted && distrusts(v.From) {
				votes[i].Code = quorum.Stepped
			}
		}
		verdict, token, by := quorum.Acquire(votes, n-len(answers), n, me)
		switch verdict {
		case quorum.Yes:
			return wire.Answer{Value: strconv.FormatUint(token, 10)}, true
		case quorum.No:
			return wire.Answer{Value: []any{int64(quorum.Held), by.Left, by.Holder}}, true
		case quorum.Ahead:
			return wire.Answer{Err: &wire.NoQuorumError{Text: "other clients try at the same time", Of: []error{ErrAhead}}}, true
		case quorum.Behind:
			return wire.Answer{Err: ErrOvertaken}, true
		case quorum.Foreign:
			return wire.Answer{Value: []any{int64(quorum.WrongKind)}}, true
		case quorum.Twice:
			return wire.Answer{Err: &wire.NoQuorumError{Permanent: true, Text: "two of the clients given to NewQuorum are for the same server, with run id " + by.Run}}, true
		case quorum.Short:
			return wire.Answer{Err: shortage(r, answers, votes, n)}, true
		default:
			return wire.Answer{}, false
		}
	}
}

// CountRenewal counts the answers to quorum_renew. The result is 1, or 0 if the lease is lost. If servers answer
// {1, n} instead of {1}, the result is the smallest n instead of 1.
func CountRenewal(r wire.Request) several.Count {
	return func(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
		votes := votesOf(answers)
		result, decided := ruling(quorum.Renew(votes, n-len(answers), n), func() error { return shortage(r, answers, votes, n) })
		if result.Value == int64(1) {
			result.Value = leastNotice(answers)
		}
		return result, decided
	}
}

// leastNotice returns the smallest n of the answers {1, n}, or 1 without them.
func leastNotice(answers map[int]wire.Answer) int64 {
	least := int64(math.MaxInt64)
	for _, a := range answers {
		if list, _ := a.Value.([]any); len(list) == 2 && list[0] == int64(quorum.Granted) {
			n, _ := list[1].(int64)
			least = min(least, n)
		}
	}
	if least == math.MaxInt64 {
		return 1
	}
	return least
}

// ruling returns the result of a verdict on a renewal or a release. short makes the error of the verdict Short.
func ruling(v quorum.Verdict, short func() error) (result wire.Answer, decided bool) {
	switch v {
	case quorum.Yes:
		return wire.Answer{Value: int64(1)}, true
	case quorum.No:
		return wire.Answer{Value: int64(0)}, true
	case quorum.Short:
		return wire.Answer{Err: short()}, true
	default:
		return wire.Answer{}, false
	}
}

// CountRelease counts the answers to quorum_leave. The result is 1, or 0 if the lease was lost. A server that got no
// request of the attempt counts as one without the lock.
func CountRelease(r wire.Request) several.Count {
	return func(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
		released, notMine := 0, 0
		for _, a := range answers {
			switch {
			case a.Value == int64(quorum.Released):
				released++
			case a.Value == int64(quorum.NotMine), errors.Is(a.Err, several.ErrUnreached):
				notMine++
			}
		}
		return ruling(quorum.Release(released, notMine, n-len(answers), n), func() error { return shortage(r, answers, nil, n) })
	}
}

// CountRights counts the answers to lock_rights. The refusal of one server is the result, even if a majority allows
// all commands.
func CountRights(r wire.Request) several.Count {
	return func(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
		fine := 0
		for _, a := range answers {
			if wire.IsRefused(a.Err) && wire.VerdictOf(a.Err).Operator {
				return a, true
			}
			if a.Err == nil {
				fine++
			}
		}
		switch {
		case len(answers) < n:
			return wire.Answer{}, false
		case fine < quorum.Majority(n):
			return wire.Answer{Err: shortage(r, answers, nil, n)}, true
		}
		return wire.Answer{Value: int64(1)}, true
	}
}

// CountAnswers counts the answers to a request that neither grants nor releases. The result is the list of the good
// answers, once a majority has given one.
func CountAnswers(r wire.Request) several.Count {
	return func(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
		var fine []any
		rest, votes := map[int]wire.Answer{}, []quorum.Vote{}
		for from, a := range answers {
			switch v := voteOf(from, a); {
			case v.Code >= quorum.Lost:
				rest[from], votes = a, append(votes, v)
			case a.Err != nil:
				rest[from] = a
			default:
				fine = append(fine, a.Value)
			}
		}
		switch {
		case len(fine) >= quorum.Majority(n):
			return wire.Answer{Value: fine}, true
		case len(answers) < n:
			return wire.Answer{}, false
		}
		return wire.Answer{Err: shortage(r, rest, votes, n)}, true
	}
}

// votesOf reads the answers to quorum_acquire and quorum_renew. Any other answer, or an error, is a vote with the code
// Failed.
func votesOf(answers map[int]wire.Answer) []quorum.Vote {
	votes := make([]quorum.Vote, 0, len(answers))
	for from, a := range answers {
		votes = append(votes, voteOf(from, a))
	}
	return votes
}

func voteOf(from int, a wire.Answer) quorum.Vote {
	v := quorum.Vote{From: from}
	list, _ := a.Value.([]any)
	if a.Err != nil || len(list) == 0 {
		return v
	}
	code, _ := list[0].(int64)
	number := func(at int) (n int64) {
		if at < len(list) {
			n, _ = list[at].(int64)
		}
		return n
	}
	switch v.Code = code; {
	case code == quorum.Granted && len(list) == 4:
		var err error
		v.Run = wire.Text(list[2])
		if v.Token, err = strconv.ParseUint(wire.Text(list[1]), 10, 64); err != nil || v.Token == 0 || v.Run == "" {
			v.Code = quorum.Failed
		}
	case code == quorum.Held && len(list) == 3:
		v.Left, v.Holder = number(1), wire.Text(list[2])
	case code == quorum.Waiting, code == quorum.TooLong:
		v.Left = number(1)
	}
	return v
}

// votesFor are the words for votes in the text of an error, by code.
var votesFor = map[int64]string{
	quorum.Granted:   "granted",
	quorum.Held:      "held by others",
	quorum.Lost:      "lost data",
	quorum.OtherList: "with another list of servers",
	quorum.Waiting:   "granting nothing after a loss of data",
	quorum.TooLong:   "with a shorter MaxTTL",
	quorum.Stepped:   "with a clock that was stepped",
	quorum.Abandoned: "with another refusal",
	quorum.WrongKind: "with another refusal",
}

// shortage returns the error of a request that too few servers could fulfill, with the number of servers by reason.
// votes are nil for a request without votes.
func shortage(r wire.Request, answers map[int]wire.Answer, votes []quorum.Vote, n int) error {
	e := &wire.NoQuorumError{}
	reasons := map[string]int{}
	for _, v := range votes {
		if reason := votesFor[v.Code]; reason != "" {
			reasons[reason]++
		}
	}
	permanent, silent := 0, 0
	for _, from := range slices.Sorted(maps.Keys(answers)) {
		a := answers[from]
		switch {
		case a.Err != nil:
			silent++
			e.Of = append(e.Of, a.Err)
			if !wire.MayRetryLater(a.Err) {
				permanent++
			}
		case votes != nil && voteOf(from, a).Code == quorum.Failed:
			silent++
			e.Of = append(e.Of, r.OddReply(a.Value))
			permanent++
		}
	}
	if silent > 0 {
		reasons["without an answer"] = silent
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, fmt.Sprintf("%d %s", reasons[reason], reason))
	}
	e.Text = fmt.Sprintf("%d of %d servers are needed: %s", quorum.Majority(n), n, strings.Join(parts, ", "))
	if len(e.Of) > 0 {
		e.Text += ": " + e.Of[0].Error()
	}
	e.Answered = len(answers)-silent >= quorum.Majority(n)
	e.Permanent = permanent > n-quorum.Majority(n)
	return e
}
