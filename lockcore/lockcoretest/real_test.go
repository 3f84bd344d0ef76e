package lockcoretest_test

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestFaultsOnRealRedis(t *testing.T) {
	server := servers.Redis(t)
	faults := lockcoretest.NewFaults()
	t.Cleanup(faults.Close)
	for _, protocol := range []int{2, 3} {
		opt := &redis.Options{Addr: server.Addr(), Dialer: faults.Dialer(nil), Protocol: protocol}
		t.Run("RESP"+string(rune('0'+protocol)), func(t *testing.T) {
			onRealRedis(t, server.Addr(), faults, once(opt))
		})
	}
}

func onRealRedis(t *testing.T, addr string, f *lockcoretest.Faults, opt *redis.Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	direct := client(t, once(&redis.Options{Addr: addr}))
	c := client(t, opt)
	patient := *opt
	patient.ReadTimeout = -1
	if err := direct.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	// hasty runs INCR n with a short timeout.
	hasty := func() error {
		o := *opt
		o.ReadTimeout = 250 * time.Millisecond // also a busy machine has sent the request by then
		o.DialTimeout = 250 * time.Millisecond
		o.DialerRetries = 1
		return client(t, &o).Incr(ctx, "n").Err()
	}
	inject := func(kind string) *lockcoretest.Rule {
		return f.Inject(t, lockcoretest.Fault{Kind: kind, Match: lockcoretest.Command("INCR", "n"), Count: 1})
	}
	want := func(n string) {
		t.Helper()
		if got := get(t, direct, "n"); got != n {
			t.Errorf("n is %q, want %q", got, n)
		}
	}

	inject(lockcoretest.DropRequest)
	if err := hasty(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("DropRequest: %v", err)
	}
	want("")
	inject(lockcoretest.SwallowReply)
	if err := hasty(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("SwallowReply: %v", err)
	}
	want("1")
	inject(lockcoretest.ResetAfter)
	if err := c.Incr(ctx, "n").Err(); !wasReset(err) {
		t.Errorf("ResetAfter: %v", err)
	}
	want("2")
	inject(lockcoretest.ResetBefore)
	if err := c.Incr(ctx, "n").Err(); !wasReset(err) {
		t.Errorf("ResetBefore: %v", err)
	}
	want("2")
	inject(lockcoretest.DuplicateRequest)
	if n, err := c.Incr(ctx, "n").Result(); n != 4 || err != nil {
		t.Errorf("DuplicateRequest: %d, %v", n, err)
	}
	inject(lockcoretest.TrickleReply)
	if n, err := c.Incr(ctx, "n").Result(); n != 5 || err != nil {
		t.Errorf("TrickleReply: %d, %v", n, err)
	}

	// Held back until its sender has closed, and then delivered.
	late := inject(lockcoretest.DelayRequest)
	if err := hasty(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("DelayRequest: %v", err)
	}
	want("5")
	late.Lift()
	await(ctx, t, func() bool { return get(t, direct, "n") == "6" })

	// The NOSCRIPT error of a script's first EVALSHA is not taken for its reply.
	const source = "return redis.call('INCR', KEYS[1]) + 0"
	script := redis.NewScript(source)
	if err := direct.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	f.Inject(t, lockcoretest.Fault{Kind: lockcoretest.ResetAfter, Match: lockcoretest.Script(source), Count: 1})
	if err := script.Run(ctx, c, []string{"n"}).Err(); !wasReset(err) {
		t.Errorf("script: %v", err)
	}
	want("7")

	// Messages, and a partition that ends before the connection does.
	sub := client(t, &patient).Subscribe(ctx, "ch")
	defer func() { _ = sub.Close() }()
	receive := func() string {
		t.Helper()
		m, err := sub.Receive(ctx)
		switch m := m.(type) {
		case *redis.Message:
			return m.Payload
		case *redis.Subscription:
			return m.Kind
		}
		return err.Error()
	}
	if got := receive(); got != "subscribe" {
		t.Fatal(got)
	}
	f.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("ch"), Count: 1})
	for _, m := range []string{"lost", "kept"} {
		if n, err := direct.Publish(ctx, "ch", m).Result(); n != 1 || err != nil {
			t.Fatalf("PUBLISH: %d, %v", n, err)
		}
	}
	if got := receive(); got != "kept" {
		t.Errorf("received %q, want kept", got)
	}
	cut := f.Partition()
	if err := direct.Publish(ctx, "ch", "late").Err(); err != nil {
		t.Fatal(err)
	}
	if err := cut.Wait(ctx, 1); err != nil { // until the message is held back
		t.Fatal(err)
	}
	if err := hasty(); err == nil {
		t.Error("INCR passed a partition")
	}
	f.Heal()
	if got := receive(); got != "late" {
		t.Errorf("received %q, want late", got)
	}
	if n := f.CutSubscriptions(); n != 1 {
		t.Errorf("%d subscriptions were cut, want 1", n)
	}
	if _, err := sub.Receive(ctx); !wasReset(err) {
		t.Errorf("received %v, want a reset", err)
	}
	if got := receive(); got != "subscribe" {
		t.Errorf("received %q, want the new subscription", got)
	}
	lockcoretest.MustFire(t, cut)
}

// wasReset reports whether the connection was reset. With RESP3 go-redis checks for pushes
// before it reads a reply. That check gets the reset, and the read gets EOF.
func wasReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

// await returns when the condition holds.
func await(ctx context.Context, t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the condition was never met: %v", ctx.Err())
		}
	}
}
