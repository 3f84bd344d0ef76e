package alerts

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// The alerts of the pages, which the chart does not have, are silent before half past, and fire ten
// minutes later.
func TestAlertsOfPages(t *testing.T) {
	const (
		one  = `leader_election_master_status{name="board",pod="a"}`
		two  = `leader_election_master_status{name="board",pod="b"}`
		from = "0x30 1x30"
	)
	days := map[string]map[string]string{
		"no leader, for 1 m":   {one: "1x30 0x30", two: "0x60"},
		"two leaders, for 1 m": {one: "1x60", two: from},
		"lease lost":           {`noonlock_election_transitions_total{name="board",event="lost"}`: from},
		"drain overrun":        {`noonlock_election_drain_overruns_total{name="board"}`: from},
		"a tick is overdue":    {`noonlock_job_next_tick_timestamp_seconds{name="draw"}`: "1800x60"},
		"a job is paused":      {`noonlock_job_paused{name="draw"}`: from},
	}
	for _, page := range []string{"OPERATIONS.md", "METRICS.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, table, found := strings.Cut(string(text), "\n| alert | expression |")
		if !found {
			t.Fatalf("%s has no such table", page)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for _, row := range regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
			series, ok := days[row[1]]
			if !ok {
				t.Errorf("%s: no test has the alert %q", page, row[1])
				continue
			}
			delete(days, row[1])
			rule := rulefmt.Rule{Expr: row[2]}
			if strings.HasSuffix(row[1], "for 1 m") {
				rule.For = model.Duration(time.Minute)
			}
			d := scraped(t, series)
			if d.fires(rule, time.Unix(29*60, 0)) {
				t.Errorf("%s: %q fires on a normal day", page, row[1])
			}
			if !d.fires(rule, time.Unix(40*60, 0)) {
				t.Errorf("%s: %q does not fire", page, row[1])
			}
		}
	}
	for name := range days {
		t.Errorf("the pages have no alert %q", name)
	}
}
