package cas_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call returns within its documented bound in every state of the network.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, func(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
		record := (&env{e}).record(c, time.Second)
		bg := context.Background()
		add("Get", 3*time.Second, func() { _, _ = record.Get(bg) })
		add("Put", 3*time.Second, func() { _, _ = record.Put(bg, cas.Version{}, []byte("x"), time.Hour) })
	})
}
