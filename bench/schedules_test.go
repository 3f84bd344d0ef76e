package bench_test

import (
	"time"

	"github.com/robfig/cron/v3"

	"github.com/noonlock/noonlock/singleton/schedule"
)

// schedules: Next of noonlock and of robfig/cron, which has only the first form, from instants all over eleven years.
func schedules(x *bench) {
	var at [3000]time.Time
	for i := range at {
		at[i] = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * (32*time.Hour + 19*time.Minute))
	}
	each := func(next func(time.Time) time.Time) float64 {
		begin, n := time.Now(), 0
		for time.Since(begin) < length() {
			for _, t := range at {
				if next(t).IsZero() {
					x.b.Fatal("no tick")
				}
			}
			n += len(at)
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(n)
	}
	t := x.table("", "schedule")
	for range *repetitions {
		peer, err := cron.ParseStandard("CRON_TZ=UTC 0 12 * * *")
		x.check(err)
		base := each(peer.Next)
		t.add("robfig/cron, `0 12 * * *`", "ns", base)
		t.add("robfig/cron, `0 12 * * *`", "× robfig/cron", 1)
		for _, spec := range []string{"0 12 * * *", "0 9 LW * *", "0 9 * * FRI#2", "H H * * *"} {
			s, err := schedule.Parse(spec, schedule.Config{Name: "report"})
			x.check(err)
			ns := each(s.Next)
			t.add("noonlock, `"+spec+"`", "ns", ns)
			t.add("noonlock, `"+spec+"`", "× robfig/cron", ns/base)
		}
	}
}
