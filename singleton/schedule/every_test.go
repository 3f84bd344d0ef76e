package schedule_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/schedule"
)

func TestEveryTicksAtMultiplesSinceTheEpoch(t *testing.T) {
	for _, c := range []struct {
		d        time.Duration
		at, want string
	}{
		{3 * time.Second, "2026-01-01T00:00:00Z", "2026-01-01T00:00:03Z"},
		{3 * time.Second, "2026-01-01T00:00:02.999999999Z", "2026-01-01T00:00:03Z"},
		{100 * time.Millisecond, "2026-01-01T00:00:00.0999Z", "2026-01-01T00:00:00.1Z"},
		{1500 * time.Millisecond, "1970-01-01T00:00:00Z", "1970-01-01T00:00:01.5Z"},
		{7 * 24 * time.Hour, "1970-01-01T00:00:00Z", "1970-01-08T00:00:00Z"},
		{time.Hour, "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "1969-12-31T22:59:59.9995Z", "1969-12-31T23:00:00Z"},
		{time.Hour, "1969-12-31T23:59:59.9999Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "2026-03-29T03:30:00+02:00", "2026-03-29T02:00:00Z"},
		{200 * 365 * 24 * time.Hour, "2026-01-01T00:00:00Z", "2169-11-13T00:00:00Z"},
	} {
		s, err := schedule.Parse("@every "+c.d.String(), schedule.Config{})
		testenv.Must(t, err)
		at, err := time.Parse(time.RFC3339Nano, c.at)
		testenv.Must(t, err)
		got := s.Next(at)
		if got.Format(time.RFC3339Nano) != c.want || got.Location() != time.UTC {
			t.Errorf("%v: Next(%v) = %v, want %v", s, c.at, got, c.want)
		}
		if got.UnixMilli()%c.d.Milliseconds() != 0 {
			t.Errorf("%v: %v is no multiple", s, got)
		}
	}
}
