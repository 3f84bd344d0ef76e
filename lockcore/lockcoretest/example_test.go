package lockcoretest_test

import (
	"context"
	"fmt"
	"time"

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

// A holder uses its hold after it has expired.
func ExampleHistory_Check() {
	var h lockcoretest.History
	h.Add(
		lockcoretest.Event{At: 0, Proc: "a", Name: "orders", Op: lockcoretest.Acquire, Token: 1, ValidUntil: 10 * time.Second},
		lockcoretest.Event{At: 11 * time.Second, Proc: "b", Name: "orders", Op: lockcoretest.Acquire, Token: 2},
		lockcoretest.Event{At: 12 * time.Second, Proc: "a", Name: "orders", Op: lockcoretest.Use, Token: 1},
		lockcoretest.Event{At: 13 * time.Second, Proc: "b", Name: "orders", Op: lockcoretest.Release, Token: 2},
	)
	for _, v := range h.Check() {
		fmt.Println(v)
	}
	// Output:
	// use outside a hold: 0s a acquire orders exclusive token 1 valid until 10s | 12s a use orders token 1
}

func ExampleClock() {
	start := time.Now()
	clock := lockcoretest.NewClock()
	clock.Advance(time.Hour) // the host was suspended, and no timer has fired
	fmt.Println(clock.Now() >= time.Hour, time.Since(start) < time.Hour)
	// Output: true true
}
