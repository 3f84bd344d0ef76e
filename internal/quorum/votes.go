package quorum

// A Vote is the answer of one server to quorum_acquire or quorum_renew.
type Vote struct {
	From   int // index of the server
	Code   int64
	Token  uint64 // Granted: proposed token
	Run    string // Granted: run id of the server
	Left   int64  // Held: TTL in ms, or -1; Waiting: ms until it grants
	Holder string // Held: value of the lock
}

// The codes of a Vote. The scripts answer with them, except for Failed and Stepped.
const (
	Failed    = 0 // no answer, or none that the scripts give
	Granted   = 1
	Held      = 4 // another attempt has the lock
	Abandoned = 6
	WrongKind = 7
	Lost      = 8 // the server may have lost data
	OtherList = 9
	Waiting   = 10 // the server grants nothing for a while
	TooLong   = 11 // the TTL is above the server's limit
	Stepped   = 12 // a grant that does not count, because the server's clock was stepped
)

// The answers to quorum_leave.
const (
	NotMine  = 0 // the server did not have the lock of this attempt
	Released = 1
)

// Majority returns how many of n servers are a majority.
func Majority(n int) int { return n/2 + 1 }

// A Verdict is the result of an acquire, a renewal or a release at all servers.
type Verdict int

// The verdicts.
const (
	Undecided Verdict = iota // more answers are needed
	Yes                      // a majority granted or released
	No                       // another attempt has a majority, or the lease was lost
	Ahead                    // of several attempts, this one has the most servers: try again
	Behind                   // another attempt has more servers: give way
	Foreign                  // too many servers have the name as another kind of lock
	Short                    // too few servers can grant
	Twice                    // two of the votes are from one server
)

// Acquire counts the votes of an acquire. pending of n servers have not answered. If the verdict is Yes, token is
// the token to commit. If it is No, by is a vote for the holder. If it is Twice, by is from the server in question.
//
// If several attempts run at the same time, each may get a minority. Then only the attempt with the
// most servers keeps them and tries again, so that one attempt succeeds. me is the value of this
// attempt. Of two attempts with equally many servers, the one with the smaller value is ahead.
func Acquire(votes []Vote, pending, n int, me string) (v Verdict, token uint64, by Vote) {
	granted, free := 0, pending // free: servers that have granted or may still grant
	for i, a := range votes {
		if a.Code != Granted {
			continue
		}
		for _, b := range votes[:i] {
			if b.Code == Granted && a.Run == b.Run {
				return Twice, 0, a
			}
		}
		granted++
		token = max(token, a.Token)
	}
	free += granted
	switch {
	case granted >= Majority(n):
		return Yes, token, by
	case free >= Majority(n):
		return Undecided, 0, by
	}
	held, best, by := holder(votes)
	foreign := count(votes, WrongKind)
	switch {
	case best >= Majority(n):
		return No, 0, by
	case free+held >= Majority(n) && pending > 0:
		return Undecided, 0, by // which attempt has the most servers is not known yet
	case free+held >= Majority(n) && (granted > best || granted == best && me < by.Holder):
		return Ahead, 0, by
	case free+held >= Majority(n):
		return Behind, 0, by
	case free+held+foreign >= Majority(n) && foreign > 0:
		return Foreign, 0, by
	case pending > 0:
		return Undecided, 0, by // the reason is not known yet
	}
	return Short, 0, by
}

// holder returns at how many servers other attempts hold the lock, the attempt that holds it at the most servers, as a
// vote with the longest TTL there, and their number, best.
func holder(votes []Vote) (held, best int, most Vote) {
	for _, a := range votes {
		if a.Code != Held {
			continue
		}
		held++
		same, left := 0, a.Left
		for _, b := range votes {
			if b.Code == Held && b.Holder == a.Holder {
				same++
				left = longest(left, b.Left)
			}
		}
		if same > best {
			best, most = same, a
			most.Left = left
		}
	}
	return held, best, most
}

// longest returns the longer of two replies of PTTL. -1 is the longest of all: the key has no TTL.
func longest(a, b int64) int64 {
	if a == -1 || b == -1 {
		return -1
	}
	return max(a, b)
}

func count(votes []Vote, code int64) (n int) {
	for _, a := range votes {
		if a.Code == code {
			n++
		}
	}
	return n
}

// Renew counts the votes of a renewal, which also commits the token.
func Renew(votes []Vote, pending, n int) Verdict {
	granted, lost := count(votes, Granted), count(votes, Held)+count(votes, Abandoned)
	switch {
	case granted >= Majority(n):
		return Yes
	case lost > n-Majority(n):
		return No
	case granted+pending >= Majority(n), lost+pending > n-Majority(n):
		return Undecided
	}
	return Short
}

// Release counts the answers to a release: released servers had the lock, and notMine did not. The verdict is No if the
// lease was lost.
func Release(released, notMine, pending, n int) Verdict {
	switch {
	case released >= Majority(n):
		return Yes
	case notMine >= Majority(n):
		return No
	case pending > 0:
		return Undecided
	case released+notMine < Majority(n):
		return Short
	case released > 0:
		return Yes // the servers that did not answer may have had the lock, too
	}
	return No
}
