package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// The slots are those that CLUSTER KEYSLOT of a server returns.
func TestSlotOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"": 0, "a": 15495, "orders": 105, "123456789": 12739, "job/daemon/x": 10251, "größe": 9425,
	} {
		if got := slotOf(name); got != want {
			t.Errorf("the slot of %q is %d, want %d", name, got, want)
		}
	}
}

func TestReadView(t *testing.T) {
	t.Parallel()
	node := func(host any, port int64) []any { return []any{host, port, "id", []any{}} }
	info := Answer{Value: "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_current_epoch:7\r\ncluster_my_epoch:3\r\n"}
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
		table := Answer{Value: []any{[]any{int64(5), int64(9), c.node, node("10.0.0.9", 7009)}}}
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
		if v, err := readView("h:1", Answer{Value: rows}, info); err == nil {
			t.Errorf("%v: %+v", rows, v)
		}
	}
	for _, failed := range [][2]Answer{{{Err: ErrUnknown}, info}, {{Value: []any{}}, {Err: ErrUnknown}}} {
		if v, err := readView("h:1", failed[0], failed[1]); !errors.Is(err, ErrUnknown) {
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
		"10.0.0.2:7001": "10.0.0.2:7001", ":7001": "10.0.0.1:7001", "fd00::2:7001": "[fd00::2]:7001",
		"[fd00::2]:7001": "[fd00::2]:7001", "node-2:7001": "node-2:7001", "10.0.0.2": "", "": "", "10.0.0.2:": "",
	} {
		got, err := redirection("10.0.0.1:7000", given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", given, got, err, want)
		}
	}
}

// A request in a cluster has a key more, after the others, and sharded messages. So has the
// request with the source.
func TestInCluster(t *testing.T) {
	t.Parallel()
	s := newScript("x", "return redis.pcall('PUBLISH', 1)")
	r := s.Call(Keys("p:{n}:a", "p:{n}:b"), "v", 1)
	args := slices.Clone(r.args)
	p := r.inCluster()
	if want := []any{"evalsha", s.sharded.sha, 3, "p:{n}:a", "p:{n}:b", "p:{n}:a:never", "v", 1}; !reflect.DeepEqual(p.args, want) {
		t.Errorf("in a cluster: %v, want %v", p.args, want)
	}
	if want := []any{"eval", Naming("return redis.pcall('SPUBLISH', 1)"), 3, "p:{n}:a", "p:{n}:b", "p:{n}:a:never", "v", 1}; !reflect.DeepEqual(p.withSource(), want) {
		t.Errorf("with source: %v, want %v", p.withSource(), want)
	}
	if s.sha == s.sharded.sha || r.args[1] != s.sha {
		t.Errorf("the request has the digest %v; the script %s and %s", r.args[1], s.sha, s.sharded.sha)
	}
	if !reflect.DeepEqual(r.args, args) {
		t.Errorf("inCluster changed the request to %v", r.args)
	}
	if c := Command("time").inCluster(); !reflect.DeepEqual(c, Command("time")) {
		t.Errorf("a plain command is %v", c)
	}
}

// Each option of a ClusterClient is used, without effect, or refused.
func TestClusterOptions(t *testing.T) {
	t.Parallel()
	refused := []string{"ReadOnly", "RouteByLatency", "RouteRandomly", "ClusterSlots", "OnConnect"}
	own := []string{ // they have no effect here
		"Addrs", "NewClient", "MaxRedirects", "RouteByLatencyTolerance", "MaxRetries", "MinRetryBackoff", "MaxRetryBackoff",
		"DialerRetries", "DialerRetryTimeout", "DialerRetryBackoff", "ReadTimeout", "WriteTimeout", "ContextTimeoutEnabled",
		"MaxConcurrentDials", "PoolFIFO", "PoolSize", "PoolTimeout", "MinIdleConns", "MaxIdleConns", "MaxActiveConns",
		"PipelineReadBufferSize", "PipelineWriteBufferSize", "PipelinePoolSize", "AutoPipelineOptions", "DisableRoutingPolicies",
		"DisableIndentity", "DisableIdentity", "IdentitySuffix", "UnstableResp3", "PushNotificationProcessor",
		"FailingTimeoutSeconds", "MaintNotificationsConfig", "ShardPicker", "ClusterStateReloadInterval",
	}
	given := &redis.ClusterOptions{Addrs: []string{"h:1", "h:2"}}
	fields := reflect.ValueOf(given).Elem()
	var used []string
	for i := range fields.NumField() {
		name, f := fields.Type().Field(i).Name, fields.Field(i)
		if !fields.Type().Field(i).IsExported() || slices.Contains(refused, name) || slices.Contains(own, name) {
			continue
		}
		used = append(used, name)
		switch f.Kind() {
		case reflect.String:
			f.SetString(name)
		case reflect.Int, reflect.Int64:
			f.SetInt(300)
		case reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Interface: // StreamingCredentialsProvider excludes the other ones
		default:
			t.Errorf("%s is a %s", name, f.Kind())
		}
	}
	opt, seeds, err := clusterOptions(given)
	if err != nil || !slices.Equal(seeds, given.Addrs) {
		t.Fatalf("seeds %v, %v", seeds, err)
	}
	got := reflect.ValueOf(opt).Elem()
	for _, name := range used {
		a, b := got.FieldByName(name), fields.FieldByName(name)
		same := a.IsValid() && (a.Kind() == reflect.Func && a.Pointer() == b.Pointer() || a.Kind() != reflect.Func && reflect.DeepEqual(a.Interface(), b.Interface()))
		if !same {
			t.Errorf("%s is not used; it must be in one of the lists", name)
		}
	}
	for _, name := range refused {
		bad := *given
		f := reflect.ValueOf(&bad).Elem().FieldByName(name)
		if f.Kind() == reflect.Bool {
			f.SetBool(true)
		} else {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
		}
		if _, _, err := clusterOptions(&bad); err == nil || !strings.Contains(fmt.Sprint(err), "the client is a") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A subscription that is not confirmed is sent again. If it is no longer wanted by then, it is
// ended, since the server may confirm it yet.
func TestUnconfirmedSubscriptionIsEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it never connects
	s := &Subscription{channels: newChannels(), ctx: ctx}
	stop := s.listenTo("a", false)
	if begin, end := s.channels.unsent(); !slices.Equal(begin, []string{"a"}) || end != nil {
		t.Errorf("first, %v begin and %v end", begin, end)
	}
	s.subscribeAgain()
	if begin, end := s.channels.unsent(); !slices.Equal(begin, []string{"a"}) || end != nil {
		t.Errorf("then, %v begin and %v end", begin, end)
	}
	s.subscribeAgain()
	stop()
	if begin, end := s.channels.unsent(); begin != nil || !slices.Equal(end, []string{"a"}) {
		t.Errorf("last, %v begin and %v end", begin, end)
	}
}
