package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// One of a job's keys is of another type (fault 32). Each script that needs it returns an
// error before it has written anything, because its writes would stay. None of them repairs
// the type.
// Mutants: the type of the history, or of any key, is checked half-way.
func TestJobScriptsOnSpoiltKeys(t *testing.T) {
	onBoth(t, func(e *env) {
		b := &jobBench{env: e}
		states := []jobState{
			{ledger: "used", tick: "due", gen: "2"},
			{ledger: "used", tick: "mine", attempt: 1, gen: "2"},
			{ledger: "used", tick: "dead", attempt: 2, gen: "2"},
			{ledger: "used", tick: "ended", earlier: "dead", gen: "1"},
			{ledger: "none", tick: "due"},
		}
		refused := map[string]bool{}
		for _, r := range jobRequests() {
			source := scripts().Source(e, r.script)
			sha := e.Raw.ScriptLoad(e.Context(), source).Val()
			for _, state := range states {
				for _, part := range r.keys {
					b.establish(state)
					args := withChannel(r.script, r.args(b, state))
					_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
						p.Del(e.Context(), b.part(part))
						if part == "fence" || part == "tomb:1" {
							p.RPush(e.Context(), b.part(part), "spoilt") // they are strings
						} else {
							p.Set(e.Context(), b.part(part), "spoilt", time.Hour)
						}
						return nil
					})
					testenv.Must(e, err)
					before := b.picture()
					answer, err := e.Raw.EvalSha(e.Context(), sha, b.keys(r.keys...), args...).Result()
					after := b.picture()
					where := fmt.Sprintf("%s with %v, and %s spoilt", r.name, state, part)
					if err != nil {
						refused[r.script+" "+part] = true
						if !before.same(after) {
							e.Fatalf("%s: %v, and half is done:\n%+v, before\n%+v", where, err, after, before)
						}
					}
					if r.script == "job_claim" && part == "runs" && err == nil && jobAnswer(answer) == "1" && !state.isMine() {
						e.Fatalf("%s: granted, and its end cannot be recorded", where)
					}
				}
			}
		}
		for _, want := range []string{
			"job_claim job", "job_claim runs", "job_claim fence", "job_complete job", "job_complete runs",
			"job_open job", "job_open runs", "job_skip job", "job_skip runs",
		} {
			if !refused[want] {
				e.Errorf("never refused: %s", want)
			}
		}
	})
}
