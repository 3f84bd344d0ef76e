package quorum_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/internal/quorum"
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

func TestNext(t *testing.T) {
	t.Parallel()
	run := 0
	state := func(member bool, list, size int, longest int64, top uint64) quorum.State {
		run++
		return quorum.State{Known: true, Run: strconv.Itoa(run), Member: member, List: list, Size: size, Longest: longest, Top: top}
	}
	member := func() quorum.State { return state(true, 2, 3, 20, 5) }
	older := func() quorum.State { return state(true, 1, 3, 30, 6) }
	empty := func() quorum.State { return state(false, 0, 0, 0, 0) }
	old := func() quorum.State { return state(false, 2, 3, 40, 7) }
	away := func() quorum.State { return quorum.State{} }
	same := member()
	for _, c := range []struct {
		name    string
		servers []quorum.State
		do      quorum.Action
		whom    []int
		longest int64
		top     uint64
	}{
		{"all are members", []quorum.State{member(), member(), member()}, quorum.Nothing, nil, 0, 0},
		{"one is away", []quorum.State{member(), member(), away()}, quorum.Nothing, nil, 0, 0},
		{"one has lost its data", []quorum.State{member(), empty(), member()}, quorum.Join, []int{1}, 20, 5},
		{"one has an old disk", []quorum.State{old(), member(), member()}, quorum.Join, []int{0}, 40, 7},
		{"one has lost its data, and one is away", []quorum.State{member(), empty(), away()}, quorum.Await, nil, 0, 0},
		{"two have lost their data", []quorum.State{empty(), member(), empty()}, quorum.Form, []int{0, 2}, 20, 5},
		{"the first start", []quorum.State{empty(), empty(), empty()}, quorum.Form, []int{0, 1, 2}, 10, 0},
		{"the first start, and one is away", []quorum.State{empty(), empty(), away()}, quorum.Form, []int{0, 1}, 10, 0},
		{"one answers", []quorum.State{empty(), away(), away()}, quorum.Await, nil, 0, 0},
		{"a new list", []quorum.State{older(), older(), older()}, quorum.Raise, []int{0, 1, 2}, 30, 6},
		{"a new list, and one is away", []quorum.State{older(), older(), away()}, quorum.Await, nil, 0, 0},
		{"a new list with a new server", []quorum.State{older(), older(), empty()}, quorum.Raise, []int{0, 1}, 30, 6},
		{"a new list, half done", []quorum.State{member(), older(), empty()}, quorum.Raise, []int{1}, 30, 6},
		{"a new list with a new server, raised", []quorum.State{member(), member(), empty()}, quorum.Join, []int{2}, 20, 5},
		{"a later list", []quorum.State{member(), state(true, 3, 3, 1, 1), member()}, quorum.Outdated, []int{1}, 0, 0},
		{"another size", []quorum.State{member(), state(true, 2, 5, 1, 1), member()}, quorum.Outdated, []int{1}, 0, 0},
		{"a larger list", []quorum.State{member(), state(true, 1, 5, 1, 1), member()}, quorum.Outdated, []int{1}, 0, 0},
		{"one server twice", []quorum.State{member(), same, same}, quorum.Double, []int{1, 2}, 0, 0},
		{"a shorter longest TTL", []quorum.State{member(), state(true, 2, 3, 9, 1), away()}, quorum.Raise, []int{1}, 20, 5},
	} {
		do, whom, longest, top := quorum.Next(c.servers, 2, 10)
		if do != c.do || !slices.Equal(whom, c.whom) || longest != c.longest || top != c.top {
			t.Errorf("%s: %v %v %d %d, want %v %v %d %d", c.name, do, whom, longest, top, c.do, c.whom, c.longest, c.top)
		}
	}
}

func TestConfirmed(t *testing.T) {
	t.Parallel()
	known := func(id string) quorum.State { return quorum.State{Known: true, Return: id} }
	first := []quorum.State{known("a"), known("b"), {}}
	second := []quorum.State{known("a"), known("c"), known("")}
	if got := quorum.Confirmed(first, second, []int{0, 1, 2}); !slices.Equal(got, []int{0}) {
		t.Errorf("confirmed %v, want the first", got)
	}
}
