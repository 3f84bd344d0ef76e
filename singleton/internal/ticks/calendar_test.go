package ticks

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCronCalendarFindsWhatCountingFinds compares jumping over bit sets with going on minute by minute.
func TestCronCalendarFindsWhatCountingFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	// pick returns a set of a few values, or now and then of most, from low to high.
	pick := func(low, high int) uint64 {
		var set uint64
		for range []int{1, 3, 40}[random.IntN(3)] {
			set |= 1 << (low + random.IntN(high-low+1))
		}
		return set
	}
	has := func(set uint64, n int) bool { return set>>n&1 == 1 }
	found := 0
	for range 150 {
		c := cronCalendar{pick(0, 59), pick(0, 23), pick(1, 31), pick(1, 12), pick(0, 6), nil, nil, random.IntN(2) == 0}
		start := time.Unix(random.Int64N(4e9)-1e9, 0).UTC()
		want := start
		if start.Second() > 0 {
			want = start.Truncate(time.Minute).Add(time.Minute)
		}
		for ; want.Before(start.AddDate(0, 0, 40)); want = want.Add(time.Minute) {
			byDate, byWeekday := has(c.dom, want.Day()), has(c.dow, int(want.Weekday()))
			day := byDate && byWeekday || c.eitherDay && (byDate || byWeekday)
			if day && has(c.month, int(want.Month())) && has(c.hour, want.Hour()) && has(c.minute, want.Minute()) {
				break
			}
		}
		wall, ok := c.next(start.Unix())
		got := time.Unix(wall, 0).UTC()
		if want.Before(start.AddDate(0, 0, 40)) {
			found++
			if !ok || !got.Equal(want) {
				t.Errorf("%+v from %v: %v %v, want %v", c, start, got, ok, want)
			}
		} else if ok && got.Before(want) {
			t.Errorf("%+v from %v: %v is no match", c, start, got)
		}
	}
	if found < 50 {
		t.Errorf("only %d of the random calendars had a match", found)
	}
}
