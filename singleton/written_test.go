package singleton

import (
	"testing"
	"time"
)

// What is written of a schedule is read as the same ticks by a later version, also
// where the zone's name says nothing, or the schedule is one that only this version has.
// Mutants: a zone is known by its name; the step of a row, or its last tick, is lost.
func TestFault80_AScheduleIsKeptForTheNextVersion(t *testing.T) {
	now := time.Date(2030, 3, 30, 22, 10, 0, 0, time.UTC)
	berlin := zoneNamed(t, "Europe/Berlin", "Europe/Berlin")
	for _, c := range []struct {
		spec string
		cfg  ScheduleConfig
		list bool
	}{
		{spec: "@every 1300ms"},
		{spec: "@daily"},
		{spec: "*/5 2-4 * 3-10 sun", cfg: ScheduleConfig{TimeZone: berlin}},
		{spec: "30 2 * * *", cfg: ScheduleConfig{TimeZone: berlin, Gap: GapSkip}},
		{spec: "0 12 * * *", cfg: ScheduleConfig{TimeZone: time.FixedZone("CST", 8*3600)}},
		{spec: "0 12 * * *", cfg: ScheduleConfig{TimeZone: time.FixedZone("Europe/Berlin", -6*3600)}},
		{spec: "0 12 * * *", cfg: ScheduleConfig{TimeZone: time.FixedZone("", 0)}},
		{spec: "0 12 * * *", cfg: ScheduleConfig{TimeZone: zoneNamed(t, "Local", "America/New_York")}, list: true},
		{spec: "*/20 * * * *", cfg: ScheduleConfig{TimeZone: zoneNamed(t, "Europe/Berlin", "Australia/Lord_Howe")}, list: true},
	} {
		s, err := ParseSchedule(c.spec, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := write(s, fingerprintTicks(s), now)
		read, err := readSchedule(w.text)
		if err != nil {
			t.Fatalf("%q was written as %q, and is read with %v", c.spec, w.text, err)
		}
		if w.until.IsZero() == c.list {
			t.Errorf("%q is written as %q", c.spec, w.text)
		}
		from, to := now, w.until
		if !c.list {
			from, to = now.AddDate(0, -1, 0), now.AddDate(0, 8, 0)
		}
		a, b := owed(s, from, to), owed(read, from, to)
		if a == nil || b == nil || *a != *b {
			t.Errorf("%q, written as %q: the ticks are %+v and %+v", c.spec, w.text, a, b)
		}
		for at := now; at.Before(to) && at.Before(now.AddDate(0, 2, 0)); at = s.Next(at) {
			if x, y := s.Next(at), read.Next(at); !x.Equal(y) && !y.IsZero() {
				t.Fatalf("%q, written as %q: after %v comes %v, and %v", c.spec, w.text, at, x, y)
			}
		}
	}
	w := write(anonymous{time.Minute}, "", now)
	if w.text != "ticks 1901139060000+60000*1000 and more" || !w.half.Equal(now.Add(501*time.Minute)) {
		t.Errorf("a schedule of one's own is written as %+v", w)
	}
	if w := write(rare{}, "", now); w.text != "ticks 64060588800000+157784803200000*2" || !w.until.IsZero() {
		t.Errorf("a schedule that ends is written as %+v", w)
	}
	for _, text := range []string{"", "ticks 5", "ticks 5+0*0", "0 12 * * * in Local", "0 12 * * * in Nowhere/Land", "noon"} {
		if s, err := readSchedule(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}

// How many ticks are owed is counted, or computed where there may be millions.
func TestOwedTicks(t *testing.T) {
	s := seconds(100 * time.Millisecond)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		upto  time.Duration
		count int
	}{{99 * time.Millisecond, 0}, {100 * time.Millisecond, 1}, {399 * time.Millisecond, 3}, {30 * 24 * time.Hour, 25_920_000}} {
		skip := owed(s, at, at.Add(c.upto))
		switch {
		case skip == nil:
			if c.count != 0 {
				t.Errorf("up to %v nothing is owed", c.upto)
			}
		case skip.Count != c.count || !skip.First.Equal(at.Add(100*time.Millisecond)) || !skip.Last.Equal(at.Add(c.upto.Truncate(100*time.Millisecond))):
			t.Errorf("up to %v: %+v", c.upto, skip)
		}
	}
}
