package cluster

import (
	"errors"
	"reflect"
	"testing"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// The slots are those that CLUSTER KEYSLOT of a server returns.
func TestSlotOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"": 0, "a": 15495, "orders": 105, "123456789": 12739, "größe": 9425,
	} {
		if got := slotOf(name); got != want {
			t.Errorf("the slot of %q is %d, want %d", name, got, want)
		}
	}
}

func TestReadView(t *testing.T) {
	t.Parallel()
	node := func(host any, port int64) []any { return []any{host, port, "id", []any{}} }
	info := wire.Answer{Value: "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_current_epoch:7\r\ncluster_my_epoch:3\r\n"}
	for _, c := range []struct {
		asked string
		node  []any
		want  string // empty: an error
	}{
		{"10.0.0.1:7000", node("10.0.0.2", 7001), "10.0.0.2:7001"},
		{"10.0.0.1:7000", node("", 7001), "10.0.0.1:7001"},
		{"10.0.0.1:7000", node(nil, 7001), "10.0.0.1:7001"},
		{"10.0.0.1:7000", node("?", 7001), "10.0.0.1:7001"},
		{"10.0.0.1:7000", node("127.0.0.1", 7001), "10.0.0.1:7001"},
		{"127.0.0.1:7000", node("127.0.0.1", 7001), "127.0.0.1:7001"},
		{"[fd00::1]:7000", node("fd00::2", 7001), "[fd00::2]:7001"},
		{"10.0.0.1:7000", node("node-2.example", 7001), "node-2.example:7001"},
		{"10.0.0.1:7000", node("10.0.0.2", 7001)[:1], ""},
		{"10.0.0.1:7000", []any{"10.0.0.2", "7001"}, ""},
	} {
		table := wire.Answer{Value: []any{[]any{int64(5), int64(9), c.node, node("10.0.0.9", 7009)}}}
		v, err := readView(c.asked, table, info)
		if c.want == "" {
			if err == nil {
				t.Errorf("%v: no error", c.node)
			}
			continue
		}
		want := &view{epoch: 7, ok: true, primaries: []slotRange{{5, 9, c.want}}, replicas: map[string]string{"10.0.0.9:7009": c.want}}
		if err != nil || !reflect.DeepEqual(v, want) {
			t.Errorf("asked %s: %+v, %v; want %+v", c.asked, v, err, want)
		}
	}
	for _, rows := range []any{"x", []any{"x"}, []any{[]any{int64(5), int64(9)}}, []any{[]any{int64(5), int64(slots), node("h", 1)}}, []any{[]any{int64(-1), int64(1), node("h", 1)}}} {
		if v, err := readView("h:1", wire.Answer{Value: rows}, info); err == nil {
			t.Errorf("%v: %+v", rows, v)
		}
	}
	for _, failed := range [][2]wire.Answer{{{Err: wire.ErrUnknown}, info}, {{Value: []any{}}, {Err: wire.ErrUnknown}}} {
		if v, err := readView("h:1", failed[0], failed[1]); !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("%+v, %v", v, err)
		}
	}
}

// A node that was cut off has an older epoch.
func TestNewerView(t *testing.T) {
	t.Parallel()
	byAge := []*view{nil, {epoch: 1, ok: true}, {epoch: 2}, {epoch: 2, ok: true}, {epoch: 3}}
	for i, a := range byAge {
		for j, b := range byAge {
			if a != nil && a.newerThan(b) != (i > j) {
				t.Errorf("%+v is newer than %+v: %v", a, b, i <= j)
			}
		}
	}
}

func TestRedirection(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"5 10.0.0.2:7001": "10.0.0.2:7001", "5 :7001": "10.0.0.1:7001", "5 ?:7001": "10.0.0.1:7001", "5 fd00::2:7001": "[fd00::2]:7001",
		"5 [fd00::2]:7001": "[fd00::2]:7001", "5 node-2:7001": "node-2:7001", "5 10.0.0.2": "", "": "", "5 10.0.0.2:": "",
		"10.0.0.2:7001": "", "-1 10.0.0.2:7001": "", "16384 10.0.0.2:7001": "",
	} {
		slot, got, err := redirection("10.0.0.1:7000", &conn.Refusal{Text: "MOVED " + given})
		if got != want || (err == nil) != (want != "") || err == nil && slot != 5 {
			t.Errorf("%q: %d, %q, %v; want %q", given, slot, got, err, want)
		}
	}
}
