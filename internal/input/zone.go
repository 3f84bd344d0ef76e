package input

import "time"

// Zone returns the time zone of a name, or the rule that the name breaks. Local breaks it, because
// each machine has another one.
func Zone(name string) (loc *time.Location, rule string) { return zone(name, time.LoadLocation) }

func zone(name string, load func(string) (*time.Location, error)) (loc *time.Location, rule string) {
	switch name {
	case "Local": // not time.Local.String(), which is UTC where /etc/localtime is missing
		return nil, "a time zone that is the same on each machine, such as Europe/Paris or UTC"
	case "":
		return nil, zoneRule
	}
	loc, err := load(name)
	if err == nil {
		return loc, ""
	}
	for _, known := range []string{"Etc/UTC", "Europe/Paris"} {
		if _, err := load(known); err == nil {
			return nil, zoneRule
		}
	}
	return nil, "UTC, because the time zone data is missing here; install tzdata, or import time/tzdata in the program"
}

const zoneRule = "a name in the time zone data (IANA), such as Europe/Paris or UTC"
