package readiness_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Workers log a failure together, each kind once. What is short is logged with its end, and what another kind replaces
// at once. A worker that stops has not recovered.
func TestReports(t *testing.T) {
	t.Parallel()
	const away, back, refused = `"msg"="away" "workers"=3 "err"="a: no answer"`, `"msg"="back" "workers"=3 "after"=`, `"msg"="away" "error"="refused" "workers"=1`
	for name, test := range map[string]struct {
		end   func(workers []*readiness.State)
		waits time.Duration // before that
		want  []string      // further lines
	}{
		"long":     {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0); w[2].Works(0) }, 2 * time.Second, []string{away, back}},
		"short":    {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0); w[2].Works(0) }, time.Second / 2, []string{away, back}},
		"one left": {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0) }, 2 * time.Second, []string{away}},
		"one ends": {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0); w[2].Stop() }, 2 * time.Second, []string{away, back}},
		"all end":  {func(w []*readiness.State) { w[0].Stop(); w[1].Stop(); w[2].Stop() }, time.Second / 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testenv.Log
				logger := log.Info("")
				all := &readiness.Reports{Log: logger, Workers: "workers", Message: "away", Again: "back"}
				workers := []*readiness.State{{}, {}, {}}
				for _, text := range []string{"a: no answer", "b: no answer", "c: no answer"} { // each again and again
					for _, w := range workers {
						w.Failed(all, logger, errors.New(text), true)
					}
				}
				time.Sleep(test.waits)
				test.end(workers)
				time.Sleep(2 * time.Second)
				total := len(test.want)
				for _, line := range test.want {
					log.Lines(t, 1, line)
				}
				log.Lines(t, total, "")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Log
		all, w := &readiness.Reports{Workers: "workers", Message: "away"}, readiness.State{}
		for _, text := range []string{"a: no answer", "refused", "a: no answer"} {
			w.Failed(all, log.Info("w: "), errors.New(text), text != "refused")
		}
		log.Lines(t, 1, "w: ", refused)
		log.Lines(t, 1, "w: ", "no answer")
	})
}
