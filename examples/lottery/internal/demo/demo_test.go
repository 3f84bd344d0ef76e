//go:build !nodemo

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func list() noon.Entrants {
	all := noon.Entrants{}
	for i := range 40 {
		all[fmt.Sprintf("id-%02d", i)] = i%2 == 0
	}
	return all
}

// The whole demo. Its checks are effective: each fails if what it checks was otherwise.
func TestDemo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	server, err := lockcoretest.StartRedis()
	testenv.Must(t, err)
	defer server.Close()
	d := &demo{list: list(), redis: server, out: &out}
	defer d.close(t.Context())
	if err := errors.Join(d.play(t.Context()), d.check(t.Context())); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, once := range []string{
		"NOON 1 of 5", "NOON 2 of 5", "NOON 3 of 5", "NOON 4 of 5", "NOON 5 of 5", "IS CUT OFF", "takes it over: attempt 2",
		" is stale, token ", "ALL REPLICAS STOP", "noon 4 has passed", "are started again",
	} {
		if n := strings.Count(out.String(), once); n != 1 {
			t.Errorf("%q is printed %d times", once, n)
		}
	}
	if n := strings.Count(out.String(), "\n  ok      "); n != 5 {
		t.Errorf("%d checks held, want 5:\n%s", n, &out)
	}
	refusal, back, stale := d.lateErr, d.restart, d.stale
	for what, change := range map[string]func(){
		"a late write that was taken":       func() { d.lateErr = nil },
		"no restart before the missed noon": func() { d.restart = time.Now() },
		"a token that did not grow":         func() { d.stale.Token = ^uint64(0) },
	} {
		change()
		out.Reset()
		if err := d.check(t.Context()); err == nil || strings.Count(out.String(), "FAILED") != 1 {
			t.Errorf("%s: %v\n%s", what, err, &out)
		}
		d.lateErr, d.restart, d.stale = refusal, back, stale
	}
}
