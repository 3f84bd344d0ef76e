package ticks

import (
	"strings"
	"testing"
	"time"
)

// A later version reads the same ticks from a stored schedule, even if the zone's name
// means nothing, or the schedule exists only in this version.
// Mutants: a zone is identified by its name; the step of a row, or its last tick, is lost.
func TestFault80_AScheduleIsKeptForTheNextVersion(t *testing.T) {
	now := time.Date(2030, 3, 30, 22, 10, 0, 0, time.UTC)
	berlin := zoneNamed(t, "Europe/Berlin", "Europe/Berlin")
	for _, c := range []struct {
		spec string
		cfg  Config
		list bool
	}{
		{spec: "@every 1300ms"},
		{spec: "@daily"},
		{spec: "*/5 2-4 * 3-10 sun", cfg: Config{TimeZone: berlin}},
		{spec: "30 2 * * *", cfg: Config{TimeZone: berlin, SkipGaps: true}},
		{spec: "0 12 * * *", cfg: Config{TimeZone: time.FixedZone("CST", 8*3600)}},
		{spec: "0 12 * * *", cfg: Config{TimeZone: time.FixedZone("Europe/Berlin", -6*3600)}},
		{spec: "0 12 * * *", cfg: Config{TimeZone: time.FixedZone("", 0)}},
		{spec: "0 12 * * *", cfg: Config{TimeZone: zoneNamed(t, "Local", "America/New_York")}, list: true},
		{spec: "*/20 * * * *", cfg: Config{TimeZone: zoneNamed(t, "Europe/Berlin", "Australia/Lord_Howe")}, list: true},
	} {
		s, err := Parse(c.spec, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := Write(s, Fingerprint(s), now)
		read, err := Read(w.Text)
		if err != nil {
			t.Fatalf("%q was written as %q, and is read with %v", c.spec, w.Text, err)
		}
		if w.until.IsZero() == c.list {
			t.Errorf("%q is written as %q", c.spec, w.Text)
		}
		from, to := now, w.until
		if !c.list {
			from, to = now.AddDate(0, -1, 0), now.AddDate(0, 8, 0)
		}
		a, b := Between(s, from, to), Between(read, from, to)
		if a.Count == 0 || a != b {
			t.Errorf("%q, written as %q: the ticks are %+v and %+v", c.spec, w.Text, a, b)
		}
		for at := now; at.Before(to) && at.Before(now.AddDate(0, 2, 0)); at = s.Next(at) {
			if x, y := s.Next(at), read.Next(at); !x.Equal(y) && !y.IsZero() {
				t.Fatalf("%q, written as %q: after %v comes %v, and %v", c.spec, w.Text, at, x, y)
			}
		}
	}
	w := Write(anonymous{time.Minute}, "", now)
	if w.Text != "ticks 1901139060000+60000*1000 and more" || !w.Half.Equal(now.Add(501*time.Minute)) {
		t.Errorf("a schedule of one's own is written as %+v", w)
	}
	if read, err := Read(Write(uneven{}, "", now).Text); err != nil || Between(read, now, now.AddDate(1, 0, 0)).Count != writtenTicks {
		t.Errorf("of a schedule without a constant interval %+v is kept, %v", Between(read, now, now.AddDate(1, 0, 0)), err)
	}
	if w := Write(rare{}, "", now); w.Text != "ticks 64060588800000+157784803200000*2" || !w.until.IsZero() {
		t.Errorf("a schedule that ends is written as %+v", w)
	}
	for text, part := range map[string]string{
		"": "", "ticks 5": "ticks 5", "ticks 5+0*0": "ticks 5", "noon": "noon",
		"0 12 * * * in Local":        `the time zone of the written schedule is "Local"; it must be`,
		"0 12 * * * in Nowhere/Land": `the time zone of the written schedule is "Nowhere/Land"; it must be`,
	} {
		if s, err := Read(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is read as %v, %v", text, s, err)
		}
	}
}

// uneven is a schedule whose intervals differ.
type uneven struct{}

func (uneven) Next(t time.Time) time.Time {
	minute := t.Unix()/60 + 1
	for minute*minute%7 != 1 && minute*minute*minute%11 != 5 {
		minute++
	}
	return time.Unix(minute*60+minute*minute%59, 0).UTC()
}

// The number of unrecorded ticks is counted, or computed if there may be millions.
func TestUnrecordedTicks(t *testing.T) {
	s := everySchedule{100}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		upto  time.Duration
		count int
	}{{99 * time.Millisecond, 0}, {100 * time.Millisecond, 1}, {399 * time.Millisecond, 3}, {30 * 24 * time.Hour, 25_920_000}} {
		span := Between(s, at, at.Add(c.upto))
		switch {
		case span.Count == 0:
			if c.count != 0 {
				t.Errorf("up to %v nothing is owed", c.upto)
			}
		case span.Count != c.count || !span.First.Equal(at.Add(100*time.Millisecond)) || !span.Last.Equal(at.Add(c.upto.Truncate(100*time.Millisecond))):
			t.Errorf("up to %v: %+v", c.upto, span)
		}
	}
}
