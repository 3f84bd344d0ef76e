package schedule_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton/schedule"
)

func BenchmarkScheduleNext(b *testing.B) {
	berlin := mustZone(b, "Europe/Berlin")
	at := time.Date(2026, time.July, 14, 17, 42, 11, 0, time.UTC)
	for _, spec := range []string{
		"* * * * *", "*/5 * * * *", "0 12 * * *", "30 2 * * SUN", "0 0 1 1 *", "0 0 29 2 *", "0 0 29 2 */7", "0 * 29 2 */7", "@every 3s",
	} {
		b.Run(spec, func(b *testing.B) {
			s := mustSchedule(b, spec, schedule.Config{TimeZone: berlin})
			b.ReportAllocs()
			for b.Loop() {
				s.Next(at)
			}
		})
	}
}
