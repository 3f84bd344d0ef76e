package ticks

import (
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no time zone data
)

// TestZoneAtMovesOn: walking from end to end always gets further and misses no change of the offset, also where package
// time computes the bounds of a period from a yearly rule (2020 and 2040 are leap years).
func TestZoneAtMovesOn(t *testing.T) {
	for _, zone := range []string{
		"UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "Africa/Cairo", "America/Santiago",
		"Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kolkata",
	} {
		t.Run(zone, func(t *testing.T) {
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, year := range []int{2011, 2020, 2023, 2039, 2040} {
				from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
				to := from + 2*366*secondsPerDay
				steps := 0
				for at := from; at < to; steps++ {
					offset, end := zoneAt(loc, at)
					if end <= at {
						t.Fatalf("the period of %v ends at %v", time.Unix(at, 0).UTC(), time.Unix(end, 0).UTC())
					}
					for s := at; s < min(end, to); s += 15 * 60 {
						if _, want := time.Unix(s, 0).In(loc).Zone(); int64(want) != offset {
							t.Fatalf("from %v to %v the offset was to be %d, but at %v it is %d",
								time.Unix(at, 0).UTC(), time.Unix(end, 0).UTC(), offset, time.Unix(s, 0).UTC(), want)
						}
					}
					at = end
				}
				if steps > 20 {
					t.Errorf("%d periods in two years from %d", steps, year)
				}
			}
		})
	}
}
