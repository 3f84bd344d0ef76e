package lockcoretest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// SET NX is applied and its reply is lost. go-redis retries, and the answer is that the
// key is already set.
func ExampleFaults_Add() {
	ctx := context.Background()
	r, err := lockcoretest.StartRedis()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	rule, err := r.Faults().Add(lockcoretest.Fault{
		Kind:  lockcoretest.ResetAfter,
		Match: lockcoretest.Command("SET", "lock"),
		Count: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	rdb := r.Client()
	acquired, err := rdb.SetNX(ctx, "lock", "me", time.Minute).Result()
	fmt.Println("acquired:", acquired, err)
	fmt.Println("holder:", rdb.Get(ctx, "lock").Val())
	fmt.Println("injected:", rule.Fired())
	// Output:
	// acquired: false <nil>
	// holder: me
	// injected: 1
}

// A request is held back until the rule is lifted. Then all connections are cut.
func ExampleFaults() {
	ctx := context.Background()
	r, err := lockcoretest.StartRedis()
	if err != nil {
		panic(err)
	}
	defer r.Close()
	network := lockcoretest.NewFaults() // of one client
	defer network.Close()
	opt := r.Options()
	opt.Dialer = network.Dialer(opt.Dialer)
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	const source = "return redis.call('INCR', KEYS[1])"
	rule, err := network.Add(lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lockcoretest.Script(source)})
	if err != nil {
		panic(err)
	}
	answers := make(chan string)
	go func() { answers <- rdb.Eval(ctx, source, []string{"n"}).String() }()
	if err := rule.Wait(ctx, 1); err != nil {
		panic(err)
	}
	fmt.Println("before:", r.Client().Exists(ctx, "n").Val())
	rule.Lift()
	fmt.Println(<-answers)
	fmt.Println("cut:", network.CutSubscriptions(), network.Cut())
	// Output:
	// before: 0
	// eval return redis.call('INCR', KEYS[1]) 1 n: 1
	// cut: 0 1
}

// Inject fails the test if the fault was never injected.
func ExampleFaults_Inject() {
	_ = func(t *testing.T) { // a test
		r := lockcoretest.NewRedis(t)
		rule := r.Faults().Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("orders"), Count: 1})
		// Here the lost message must do no harm.
		lockcoretest.MustFire(t, rule) // by now, and not only at the end
	}
}

// A server restarts with its data, hangs, and has a clock that is set. Then it loses its data.
func ExampleRedis() {
	ctx := context.Background()
	r, err := lockcoretest.StartRedis()
	if err != nil {
		panic(err)
	}
	defer r.Close()
	rdb := r.Client()
	rdb.Set(ctx, "lock", "me", time.Hour)
	fmt.Println(r.Restart(), rdb.Get(ctx, "lock").Val())

	r.Hang()
	time.AfterFunc(10*time.Millisecond, r.Unhang)
	fmt.Println(rdb.Get(ctx, "lock").Val())

	r.StepClock(30 * time.Minute)
	fmt.Println("30 minutes are left:", rdb.TTL(ctx, "lock").Val() <= 30*time.Minute)

	r.Server().SetError("LOADING Redis is loading the dataset in memory")
	fmt.Println(rdb.Get(ctx, "lock").Err())

	r.Stop()
	r.Server().FlushAll()
	fmt.Println(r.Start(), rdb.Exists(ctx, "lock").Val())
	// Output:
	// <nil> me
	// me
	// 30 minutes are left: true
	// LOADING Redis is loading the dataset in memory
	// <nil> 0
}
