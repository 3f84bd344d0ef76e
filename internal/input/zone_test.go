package input

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no time zone data
)

// An unknown zone is told apart from a machine without time zone data, whose error must not suggest
// a name that is refused too.
func TestFault115_ZonesWithoutData(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC // as in an image without /etc/localtime
	none := func(name string) (*time.Location, error) {
		if name == "UTC" {
			return time.UTC, nil
		}
		return nil, errors.New("unknown time zone " + name)
	}
	for _, c := range []struct {
		name string
		load func(string) (*time.Location, error)
		rule string
	}{
		{"Europe/Paris", time.LoadLocation, ""},
		{"UTC", time.LoadLocation, ""},
		{"Mars/North", time.LoadLocation, "such as Europe/Paris"},
		{"", time.LoadLocation, "such as Europe/Paris"},
		{"Local", time.LoadLocation, "the same on each machine"},
		{"UTC", none, ""},
		{"Europe/Paris", none, "the time zone data is missing"},
		{"Mars/North", none, "the time zone data is missing"},
	} {
		loc, rule := zone(c.name, c.load)
		if !strings.Contains(rule, c.rule) || (rule == "") != (c.rule == "") || (rule == "") != (loc != nil) {
			t.Errorf("%q: the zone is %v, the rule is %q", c.name, loc, rule)
		}
		if strings.Contains(c.rule, "missing") && strings.Contains(rule, "Europe") {
			t.Errorf("%q: the rule %q suggests a name that is refused", c.name, rule)
		}
	}
}
