package quorum_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// vote reads a vote: g<token> of a server of its own, h<holder>, or another letter.
func vote(from int, text string) quorum.Vote {
	v := quorum.Vote{From: from}
	switch text[0] {
	case 'g':
		v.Code, v.Run = quorum.Granted, strconv.Itoa(from)
		_, _ = fmt.Sscan(text[1:], &v.Token)
	case 'h':
		v.Code, v.Holder, v.Left = quorum.Held, text[1:], int64(from+1)
	case 'a':
		v.Code = quorum.Abandoned
	case 'w':
		v.Code = quorum.WrongKind
	case 'l':
		v.Code = quorum.Lost
	}
	return v
}

func votes(texts []string) (all []quorum.Vote) {
	for i, text := range texts {
		if text != "?" {
			all = append(all, vote(i, text))
		}
	}
	return all
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		votes []string // ? is pending, - has failed
		want  quorum.Verdict
		token uint64
		by    string
	}{
		{[]string{"?", "?", "?"}, quorum.Undecided, 0, ""},
		{[]string{"g5", "?", "?"}, quorum.Undecided, 0, ""},
		{[]string{"g5", "g7", "?"}, quorum.Yes, 7, ""},
		{[]string{"g7", "g5", "-"}, quorum.Yes, 7, ""},
		{[]string{"g7", "g5", "hx"}, quorum.Yes, 7, ""},
		{[]string{"g7", "-", "?"}, quorum.Undecided, 0, ""},
		{[]string{"g7", "-", "-"}, quorum.Short, 0, ""},
		{[]string{"-", "-", "?"}, quorum.Undecided, 0, ""},
		{[]string{"g7", "l", "l"}, quorum.Short, 0, ""},
		{[]string{"hx", "hx", "?"}, quorum.No, 0, "x"},
		{[]string{"g7", "hx", "hx"}, quorum.No, 0, "x"},
		{[]string{"hy", "hx", "?"}, quorum.Undecided, 0, ""},
		{[]string{"-", "hx", "g5"}, quorum.Behind, 0, ""}, // equal: the name decides
		{[]string{"-", "hz", "g5"}, quorum.Ahead, 0, ""},
		{[]string{"g5", "g5", "hx", "hx", "-"}, quorum.Behind, 0, ""},
		{[]string{"g5", "g5", "hz", "hz", "-"}, quorum.Ahead, 0, ""},
		{[]string{"g5", "g5", "hx", "hz", "-"}, quorum.Ahead, 0, ""},
		{[]string{"g5", "hx", "hx", "hz", "-"}, quorum.Behind, 0, ""},
		{[]string{"g5", "g5", "hx", "-", "-"}, quorum.Ahead, 0, ""},
		{[]string{"g5", "-", "hx", "-", "-"}, quorum.Short, 0, ""},
		{[]string{"w", "w", "?"}, quorum.Foreign, 0, ""},
		{[]string{"w", "g5", "hx"}, quorum.Behind, 0, ""},
		{[]string{"a", "a", "-"}, quorum.Short, 0, ""},
	} {
		all := votes(c.votes)
		got, token, by := quorum.Acquire(all, len(c.votes)-len(all), len(c.votes), "x1")
		if got != c.want || token != c.token || c.by != "" && by.Holder != c.by {
			t.Errorf("%v: %v, token %d, by %q; want %v, %d, %q", c.votes, got, token, by.Holder, c.want, c.token, c.by)
		}
	}
	twice := votes([]string{"g5", "g6", "?"})
	twice[1].Run = twice[0].Run
	if got, _, _ := quorum.Acquire(twice, 1, 3, "me"); got != quorum.Twice {
		t.Errorf("two votes of one server: %v", got)
	}
	if _, _, by := quorum.Acquire(votes([]string{"hx", "hx", "-"}), 0, 3, "me"); by.Left != 2 {
		t.Errorf("the lock ends in %d ms, want the longer of 1 and 2", by.Left)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		votes []string
		want  quorum.Verdict
	}{
		{[]string{"g0", "g0", "?"}, quorum.Yes},
		{[]string{"g0", "-", "?"}, quorum.Undecided},
		{[]string{"g0", "-", "-"}, quorum.Short},
		{[]string{"g0", "hx", "?"}, quorum.Undecided},
		{[]string{"g0", "hx", "hx"}, quorum.No},
		{[]string{"hx", "a", "?"}, quorum.No},
		{[]string{"hx", "l", "?"}, quorum.Undecided},
		{[]string{"hx", "l", "g0"}, quorum.Short},
		{[]string{"l", "l", "l"}, quorum.Short},
		{[]string{"l", "l", "?"}, quorum.Short},
	} {
		all := votes(c.votes)
		if got := quorum.Renew(all, len(c.votes)-len(all), len(c.votes)); got != c.want {
			t.Errorf("%v: %v, want %v", c.votes, got, c.want)
		}
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		released, notMine, pending int
		want                       quorum.Verdict
	}{
		{3, 0, 2, quorum.Yes},
		{0, 3, 2, quorum.No},
		{2, 2, 1, quorum.Undecided},
		{2, 2, 0, quorum.Yes},
		{1, 2, 0, quorum.Yes},
		{1, 1, 0, quorum.Short},
		{0, 2, 0, quorum.Short},
	} {
		if got := quorum.Release(c.released, c.notMine, c.pending, 5); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// states reads the states of servers, in words: an id, then what is known. 1 and 2 are the numbers of
// lists, v1 is the version; its servers are named after a colon. Without a word, a server is empty.
func states(texts ...string) (all []quorum.State) {
	for i, text := range texts {
		s := quorum.State{Answered: true, Run: strconv.Itoa(i), ReturnID: "r" + strconv.Itoa(i)}
		for n, word := range strings.Fields(text) {
			name, ids, list := strings.Cut(word, ":")
			switch {
			case word == "away":
				s = quorum.State{}
			case word == "lost":
				s.Member = false
			case word == "same":
				s.Run = "0"
			case list:
				s.Member = true
				s.List = quorum.List{Size: len(texts), Servers: strings.Split(ids, "")}
				_, _ = fmt.Sscanf(name, "%dv%d", &s.List.Number, &s.List.Version)
				s.MaxTTL, s.MaxToken = int64(10*s.List.Number), uint64(4+i)
			case strings.HasPrefix(word, "longest="):
				_, _ = fmt.Sscanf(word, "longest=%d", &s.MaxTTL)
			case strings.HasPrefix(word, "former="):
				s.Former = strings.Split(strings.TrimPrefix(word, "former="), "")
			case strings.HasPrefix(word, "size="):
				_, _ = fmt.Sscanf(word, "size=%d", &s.List.Size)
			case n == 0 && word != "empty":
				s.ID = word
			}
		}
		all = append(all, s)
	}
	return all
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		servers []string
		known   string // ids that the servers had, - is none
		do      quorum.Action
		first   []int
		then    []int
		needed  int
		list    string
		longest int64
		top     uint64
	}{
		{name: "all are members", servers: []string{"a 2v2:abc", "b 2v2:abc", "c 2v2:abc"}, list: "2/3/2 a b c"},
		{name: "one is away", servers: []string{"a 2v2:abc", "b 2v2:abc", "away"}, list: "2/3/2 a b c"},
		{
			name: "one has lost its data", servers: []string{"a 2v2:abc", "empty", "c 2v2:abc"}, known: "-b-",
			do: quorum.Join, first: []int{0, 2}, then: []int{1}, needed: 2, list: "2/3/4 a c r1", longest: 20, top: 6,
		},
		{
			name: "one has lost its data, and one is moved", servers: []string{"a 2v4:acy", "empty", "c 2v2:abc"}, known: "-b-",
			do: quorum.Join, first: []int{0, 2}, then: []int{1}, needed: 2, list: "2/3/6 a c r1", longest: 20, top: 6,
		},
		{
			name: "a majority has left the former list", servers: []string{"a 2v4:acX former=abc", "empty", "c 2v4:acX former=abc"},
			do: quorum.Join, then: []int{1}, list: "2/3/4 a c r1", longest: 20, top: 6,
		},
		{
			name: "two have left different lists", servers: []string{"a 2v4:acX former=abc", "empty", "c 2v4:acX former=cde"},
			do: quorum.Join, then: []int{1}, needed: 1, list: "2/3/4 a c r1", longest: 20, top: 6,
		},
		{
			name: "the same one as before", servers: []string{"a 2v4:acX", "empty", "c 2v2:abc"},
			do: quorum.Join, first: []int{2}, then: []int{1}, needed: 1, list: "2/3/4 a c r1", longest: 20, top: 6,
		},
		{
			name: "one has an old disk", servers: []string{"a 2v2:abc lost longest=40", "b 2v2:abc", "c 2v2:abc"},
			do: quorum.Join, first: []int{0}, list: "2/3/2 a b c", longest: 40, top: 6,
		},
		{
			name: "one has the data of another", servers: []string{"a 2v2:abc", "a 2v2:abc lost", "c 2v2:abc"}, known: "-b-",
			do: quorum.Join, first: []int{0, 2}, then: []int{1}, needed: 2, list: "2/3/4 a c r1", longest: 20, top: 6,
		},
		{name: "one missed a version", servers: []string{"a 2v4:acy", "y 2v4:acy", "c 2v2:abc"}, do: quorum.Raise, first: []int{2}, list: "2/3/4 a c y", longest: 20, top: 6},
		{name: "one has lost its data, and one is away", servers: []string{"a 2v2:abc", "empty", "away"}, known: "-b-", do: quorum.Await, list: "2/3/2 a b c"},
		{name: "another server in the place of one", servers: []string{"a 2v2:abc", "empty", "c 2v2:abc"}, do: quorum.Outside, list: "2/3/2 a b c"},
		{name: "the same, and one is away", servers: []string{"a 2v2:abc", "empty", "away"}, do: quorum.Outside, list: "2/3/2 a b c"},
		{name: "one with a copy of another one's data", servers: []string{"a 2v2:abc", "a 2v2:abc lost", "c 2v2:abc"}, do: quorum.Outside, list: "2/3/2 a b c"},
		{name: "a member of an earlier list", servers: []string{"a 2v2:abc", "b 2v2:abc", "d 1v2:abd longest=5"}, known: "abc", do: quorum.Outside, list: "2/3/2 a b c"},
		{name: "the same one, without its data", servers: []string{"a 2v2:abc", "b 2v2:abc", "d 1v2:abd lost"}, do: quorum.Outside, list: "2/3/2 a b c"},
		{
			name: "another server, and one has an old disk", servers: []string{"a 2v2:abcde lost", "b 2v2:abcde", "c 2v2:abcde", "d 2v2:abcde", "empty"},
			do: quorum.Join, first: []int{0}, list: "2/5/2 a b c d e", longest: 20, top: 7,
		},
		{
			name: "another server, and one has lost its data", servers: []string{"empty", "b 2v2:abcde", "c 2v2:abcde", "d 2v2:abcde", "empty"}, known: "a----",
			do: quorum.Outside, list: "2/5/2 a b c d e",
		},
		{
			name: "another server, and the others have an old disk", servers: []string{"a 2v2:abc lost", "b 2v2:abc lost", "empty"},
			do: quorum.Form, first: []int{0, 1}, list: "2/3/2 a b c", longest: 20, top: 5,
		},
		{name: "another server, and the list is announced", servers: []string{"a 2v1:abc", "b 2v1:abc", "empty"}, do: quorum.Join, first: []int{0, 1, 2}, list: "2/3/3 a b r2", longest: 20, top: 5},
		{name: "two other servers of five", servers: []string{"a 2v2:abcde", "empty", "c 2v2:abcde", "d 2v2:abcde", "empty"}, do: quorum.Outside, list: "2/5/2 a b c d e"},
		{name: "three other servers of five", servers: []string{"a 2v2:abcde", "empty", "c 2v2:abcde", "empty", "empty"}, do: quorum.Replaced},
		{
			name: "of five, one has lost its data, and one is away", servers: []string{"a 2v2:abcde", "empty", "c 2v2:abcde", "d 2v2:abcde", "away"}, known: "-b---",
			do: quorum.Await, list: "2/5/2 a b c d e",
		},
		{
			name: "the same, and the one that is away is known", servers: []string{"a 2v2:abcde", "empty", "c 2v2:abcde", "d 2v2:abcde", "away"}, known: "-b-- e",
			do: quorum.Join, first: []int{0, 2, 3}, then: []int{1}, needed: 3, list: "2/5/4 a c d e r1", longest: 20, top: 7,
		},
		{
			name: "the same, and it had other data", servers: []string{"a 2v2:abcde", "empty", "c 2v2:abcde", "d 2v2:abcde", "away"}, known: "-b-- x",
			do: quorum.Await, list: "2/5/2 a b c d e",
		},
		{
			name: "two have an old disk", servers: []string{"a 2v2:abc lost", "b 2v2:abc lost", "c 2v2:abc"},
			do: quorum.Form, first: []int{0, 1}, list: "2/3/2 a b c", longest: 20, top: 6,
		},
		{
			name: "all have an old disk, and one is away", servers: []string{"a 2v2:abc lost", "b 2v2:abc lost", "away"},
			do: quorum.Form, first: []int{0, 1}, list: "2/3/2 a b c", longest: 20, top: 5,
		},
		{name: "two have lost their data", servers: []string{"empty", "b 2v2:abc", "empty"}, known: "a-c", do: quorum.Replaced},
		{name: "two other servers of three", servers: []string{"empty", "b 2v2:abc", "empty"}, do: quorum.Replaced},
		{name: "one has an old disk, and two have lost their data", servers: []string{"empty", "b 2v2:abc lost", "empty"}, do: quorum.Replaced},
		{name: "the first start", servers: []string{"empty", "empty", "empty"}, do: quorum.Form, first: []int{0, 1, 2}, list: "2/3/1 r0 r1 r2", longest: 10},
		{name: "the first start, and one is away", servers: []string{"empty", "empty", "away"}, do: quorum.Await},
		{name: "one answers", servers: []string{"empty", "away", "away"}, do: quorum.Await},
		{name: "a new list", servers: []string{"a 1v6:abc", "b 1v6:abc", "c 1v6:abc"}, do: quorum.Raise, first: []int{0, 1, 2}, list: "2/3/1 a b c", longest: 10, top: 6},
		{name: "a new list, and one is away", servers: []string{"a 1v6:abc", "b 1v6:abc", "away"}, do: quorum.Await},
		{name: "a new list with a new server", servers: []string{"a 1v6:abc", "b 1v6:abc", "empty"}, do: quorum.Raise, first: []int{0, 1}, list: "2/3/1 a b r2", longest: 10, top: 5},
		{name: "a new list, half done", servers: []string{"a 2v2:abX", "b 1v6:abc", "empty"}, do: quorum.Raise, first: []int{1}, list: "2/3/2 a b r2", longest: 20, top: 5},
		{
			name: "a new list with a new server, raised", servers: []string{"a 2v2:abX", "b 2v2:abX", "empty"},
			do: quorum.Join, then: []int{2}, list: "2/3/2 a b r2", longest: 20, top: 5,
		},
		{name: "a new list with two new servers of three", servers: []string{"a 1v6:abc", "empty", "empty"}, do: quorum.Replaced},
		{name: "a new list with servers of two quorums", servers: []string{"a 1v6:abc", "b 1v6:abc", "x 1v2:xyz"}, do: quorum.Differs},
		{
			name: "the operator has taken the list away", servers: []string{"a 0v0:", "empty", "empty"},
			do: quorum.Raise, first: []int{0}, list: "2/3/1 a r1 r2", longest: 10, top: 4,
		},
		{
			name: "the same, half done", servers: []string{"a 2v1:aXY", "empty", "empty"},
			do: quorum.Form, first: []int{1, 2}, list: "2/3/1 a r1 r2", longest: 20, top: 4,
		},
		{name: "a later list", servers: []string{"a 2v2:abc", "b 3v1:abc", "c 2v2:abc"}, do: quorum.Outdated},
		{name: "another size", servers: []string{"a 2v2:abc", "b 2v2:abc size=5", "c 2v2:abc"}, do: quorum.Outdated},
		{name: "a larger list", servers: []string{"a 2v2:abc", "b 1v2:abc size=5", "c 2v2:abc"}, do: quorum.Outdated},
		{name: "one server twice", servers: []string{"a 2v2:abc", "b 2v2:abc", "a 2v2:abc same"}, do: quorum.Double},
		{name: "a shorter longest TTL", servers: []string{"a 2v2:abc", "b 2v2:abc longest=9", "away"}, do: quorum.Raise, first: []int{1}, list: "2/3/2 a b c", longest: 20, top: 5},
		{name: "others have replaced one", servers: []string{"a 2v4:abx", "b 2v4:abx", "c 2v2:abc"}, do: quorum.Differs},
		{name: "others replace one", servers: []string{"a 2v4:abx", "b 2v2:abc", "c 2v2:abc"}, do: quorum.Differs},
		{name: "one is of another quorum", servers: []string{"a 2v2:abc", "b 2v2:abc", "x 2v2:xyz"}, do: quorum.Differs},
		{name: "two versions at one time", servers: []string{"a 2v4:abd", "b 2v4:abx", "x 2v4:abx"}, do: quorum.Raise, first: []int{0, 1}, then: []int{2}, needed: 2, list: "2/3/6 a b x", longest: 20, top: 6},
	} {
		servers := states(c.servers...)
		for i := range servers {
			for n, id := range servers[i].List.Servers {
				if id == "X" || id == "Y" { // the first one that returns, and the last one
					at := slices.IndexFunc(servers, func(s quorum.State) bool { return s.ID == "" })
					if id == "Y" {
						at = len(servers) - 1
					}
					servers[i].List.Servers[n] = "r" + strconv.Itoa(at)
				}
			}
			slices.Sort(servers[i].List.Servers)
		}
		known := make([]string, len(servers))
		for i, id := range strings.Split(strings.ReplaceAll(c.known, " ", ""), "") {
			known[i] = strings.Trim(id, "-")
		}
		p := quorum.Next(servers, 2, 10, known)
		list := ""
		if p.List.Number > 0 {
			list = fmt.Sprintf("%d/%d/%d %s", p.List.Number, p.List.Size, p.List.Version, p.List.Text())
		}
		if p.Do != c.do || !slices.Equal(p.First, c.first) || !slices.Equal(p.Then, c.then) || list != c.list {
			t.Errorf("%s: %v %v %v, list %s; want %v %v %v, list %s", c.name, p.Do, p.First, p.Then, list, c.do, c.first, c.then, c.list)
		}
		if c.longest > 0 && (p.MaxTTL != c.longest || p.MaxToken != c.top) {
			t.Errorf("%s: longest %d, top %d; want %d, %d", c.name, p.MaxTTL, p.MaxToken, c.longest, c.top)
		}
		for moved := range len(p.First) + 1 {
			if enough := moved >= c.needed; len(p.Then) > 0 && p.Enough(p.First[:moved]) != enough {
				t.Errorf("%s: %d of %v are enough: %v, want %v", c.name, moved, p.First, !enough, enough)
			}
		}
	}
}

// An id is known if the server had it in a list in force. It stays known while the server is away, or is
// another one.
func TestKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers []string
		known   string
		want    string
	}{
		{[]string{"a 2v2:abc", "b 2v2:abc lost", "away"}, "--y", "aby"},
		{[]string{"a 2v2:abc", "b 2v2:abc", "empty"}, "--c", "abc"},
		{[]string{"a 2v2:abc", "b 2v2:abc", "empty"}, "---", "ab-"},
		{[]string{"a 2v2:abc", "b 2v2:abc", "d 1v2:abd"}, "---", "ab-"},
		{[]string{"a 2v1:abc", "b 2v1:abc", "away"}, "---", "---"},
		{[]string{"a 2v1:abc", "b 2v1:abc", "c 2v1:abc"}, "---", "abc"}, // all have it
		{[]string{"empty", "empty", "empty"}, "---", "---"},
		{[]string{"a 1v2:abc", "b 1v2:abc", "c 1v2:abc"}, "---", "---"},
	} {
		known := strings.Split(c.known, "")
		for i, id := range known {
			known[i] = strings.Trim(id, "-")
		}
		var ids []string
		for _, id := range quorum.Next(states(c.servers...), 2, 10, known).MemberIDs {
			ids = append(ids, cmp.Or(id, "-"))
		}
		testenv.Equal(t, fmt.Sprintf("%q, known %s", c.servers, c.known), strings.Join(ids, ""), c.want)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	l := quorum.List{Number: 2, Size: 3, Version: 4, Servers: []string{"a", "b", "c"}}
	if got := quorum.ReadList(l.Name(), l.Text()); got.Name() != l.Name() || got.Text() != l.Text() {
		t.Errorf("%+v, want %+v", got, l)
	}
	other := l
	other.Servers = []string{"a", "b", "d"}
	if l.Name() == other.Name() {
		t.Errorf("lists with other servers have the name %s", l.Name())
	}
	testenv.Equal(t, "the name of no list", (quorum.List{}).Name(), "")
	for _, name := range []string{"", "1/3", "1/3/1"} {
		testenv.Equal(t, name+": the number", quorum.ReadList(name, "a b c").Number, 0)
	}
}

func TestConfirmed(t *testing.T) {
	t.Parallel()
	known := func(id string) quorum.State { return quorum.State{Answered: true, ReturnID: id} }
	first := []quorum.State{known("a"), known("b"), {}}
	second := []quorum.State{known("a"), known("c"), known("")}
	if got := quorum.Confirmed(first, second, []int{0, 1, 2}); !slices.Equal(got, []int{0}) {
		t.Errorf("confirmed %v, want the first", got)
	}
}
