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
