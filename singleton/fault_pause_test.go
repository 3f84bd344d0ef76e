package singleton_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// The server loses the data of a paused job, in three ways. A replica that knows of the pause pauses
// the job again, with its author, reason and time. Each replica logs and counts the loss. A resume
// after that counts, also for a replica that looks later.
// Mutants: the pause is not restored, or without its author; a stale replica pauses the job again.
func TestFault112_APauseIsLostWithTheData(t *testing.T) {
	for name, lose := range map[string]func(f *fleet){
		"FLUSHALL":         func(f *fleet) { testenv.Must(f, f.Raw.FlushAll(f.Context()).Err()) },
		"an empty restart": func(f *fleet) { testenv.Must(f, f.Bubble.Restart(true)) },
		"DEL":              func(f *fleet) { testenv.Must(f, f.Raw.Del(f.Context(), f.key("draw", "job")).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				reg := prometheus.NewRegistry()
				for _, name := range []string{"a", "b"} {
					r := f.replica(name, singleton.Config{}, reg)
					r.add("draw", "@every 1s", nil, singleton.JobConfig{})
					r.run()
				}
				f.recorded("draw", 3)
				job, err := f.job("draw").By(lockcore.Operator{Who: "ann@host", Reason: "no data"})
				testenv.Must(t, err)
				testenv.Must(t, job.Pause(t.Context()))
				f.Pass(2 * time.Second)
				before, err := job.Status(t.Context())
				testenv.Must(t, err)
				lose(f)
				n := len(f.book.all())
				f.Pass(2 * time.Minute)
				if now := len(f.book.all()); now != n {
					t.Errorf("%d runs of a paused job", now-n)
				}
				st, err := job.Status(t.Context())
				testenv.Must(t, err)
				acts, err := job.Actions(t.Context(), 10)
				testenv.Must(t, err)
				if !st.Paused || !st.PausedSince.Equal(before.PausedSince) {
					t.Errorf("status is %+v, before the loss %+v", st, before)
				}
				if len(acts) != 1 || acts[0] != (singleton.Action{At: before.PausedSince, Verb: "pause", By: "ann@host", Reason: "no data"}) {
					t.Errorf("acts are %+v", acts)
				}
				if n := f.log.Count("ledger lost or set back", `"paused"=true`); n != 2 {
					t.Errorf("the loss was logged %d times", n)
				}
				if n, _ := metric(t, reg, "noonlock_job_ledger_losses_total", "name", "draw"); n != 2 {
					t.Errorf("%v losses were counted", n)
				}
				if n := f.log.Count("job resumed"); n != 0 {
					t.Errorf("a resume was logged %d times", n)
				}
				testenv.Must(t, job.Resume(t.Context()))
				f.Pass(2 * time.Minute)
				if now := len(f.book.all()); now < n+100 {
					t.Errorf("%d runs after the resume", now-n)
				}
				f.ranOnce("draw")
			})
		})
	}
}
