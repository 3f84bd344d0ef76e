package lock

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

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
	opt, seeds, bad := clusterOptions(given)
	if bad != nil || !slices.Equal(seeds, given.Addrs) {
		t.Fatalf("seeds %v, %v", seeds, bad)
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
		wrong := *given
		f := reflect.ValueOf(&wrong).Elem().FieldByName(name)
		if f.Kind() == reflect.Bool {
			f.SetBool(true)
		} else {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
		}
		if _, _, bad := clusterOptions(&wrong); bad == nil || !strings.HasPrefix(bad.given, "a ") {
			t.Errorf("%s: %v", name, bad)
		}
	}
}
