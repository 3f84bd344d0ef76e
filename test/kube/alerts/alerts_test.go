// Package alerts tests the chart's alerts and dashboard with Prometheus itself. It has tests only.
package alerts

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"
	"sigs.k8s.io/yaml"
)

// The charts, with values for alerts and other optional objects.
var (
	lottery = []string{"../../../charts/lottery", "--values", "../../../charts/lottery/tests/first-try.yaml", "--set", "monitoring.rules.enabled=true,monitoring.dashboard.enabled=true,monitoring.serviceMonitor.enabled=true,networkPolicy.enabled=true"}
	cron    = []string{"../../../charts/noonctl", "--values", "../../../charts/noonctl/tests/cron.yaml", "--set", "monitoring.rules.enabled=true,monitoring.podMonitor.enabled=true,networkPolicy.enabled=true,serve.enabled=true,serve.existingSecret=page"}
	elect   = []string{"../../../charts/noonctl", "--values", "../../../charts/noonctl/tests/elect.yaml", "--set", "monitoring.rules.enabled=true"}
)

// template returns the objects of a chart. The environment variable HELM names the helm program.
func template(t *testing.T, chart []string) string {
	t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal("HELM is not set; it must name the program helm")
	}
	out, err := exec.CommandContext(t.Context(), helm, append([]string{"template", "demo", "--namespace", "here"}, chart...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// rendered returns the object of one kind in a chart.
func rendered(t *testing.T, chart []string, kind string, into any) {
	t.Helper()
	for document := range strings.SplitSeq(template(t, chart), "\n---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") && (kind != "ConfigMap" || strings.Contains(document, "-dashboard")) {
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the chart has no %s", kind)
}

func rules(t *testing.T, chart []string) map[string]rulefmt.Rule {
	t.Helper()
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	rendered(t, chart, "PrometheusRule", &object)
	groups, errs := rulefmt.Parse(object.Spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	all := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule
		}
	}
	return all
}

const (
	deployed = `namespace="here",job="demo-lottery"`
	target   = deployed + `,pod="a"`
	noons    = target + `,name="lottery"`
	young    = deployed + `,pod="b"`
	ready    = `kube_deployment_status_replicas_ready{namespace="here",deployment="demo-lottery",job="kube-state-metrics"}`
)

// well is one pod on a normal day, with one noon per hour, over 60 minutes.
func well() map[string]string {
	series := map[string]string{
		ready:                "3x60",
		`up{` + target + `}`: "1x60",
		`process_start_time_seconds{` + target + `}`:                                     "-86400x60",
		`noonlock_script_errors_total{` + target + `,script="job_open",reason="unsent"}`: "40x60",
		`noonlock_leases_held{` + target + `,kind="run"}`:                                "0x30 1 0x30",
		`noonlock_job_clock_offset_seconds{` + target + `}`:                              "0.01x60",
		`noonlock_job_last_success_timestamp_seconds{` + noons + `}`:                     "0x60",
		`noonlock_lease_losses_total{` + target + `,cause="lost"}`:                       "1x60",
		`noonlock_job_takeovers_total{` + noons + `}`:                                    "3x60",
		`noonlock_job_runs_total{` + noons + `,outcome="succeeded"}`:                     "5x30 6x30",
		`noonlock_job_skipped_ticks_total{` + noons + `,reason="paused"}`:                "0x30 7x30",
	}
	for _, outcome := range []string{"failed", "unknown"} {
		series[`noonlock_job_runs_total{`+noons+`,outcome="`+outcome+`"}`] = "2x60"
	}
	for _, reason := range []string{"missed", "overlap", "deadline"} {
		series[`noonlock_job_skipped_ticks_total{`+noons+`,reason="`+reason+`"}`] = "0x60"
	}
	return series
}

// day is the data that Prometheus has scraped.
type day struct {
	t      *testing.T
	store  *teststorage.TestStorage
	engine *promql.Engine
}

func scraped(t *testing.T, series map[string]string) *day {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for name, values := range series {
		fmt.Fprintf(&load, "  %s %s\n", name, values)
	}
	d := &day{
		t: t, store: promqltest.LoadedStorage(t, load.String()),
		engine: promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery),
	}
	return d
}

// fires reports whether the alert fires at that time: its expression has been true for the same
// series for the configured duration.
func (d *day) fires(rule rulefmt.Rule, at time.Time) bool {
	d.t.Helper()
	began := at.Add(-time.Duration(rule.For))
	query, err := d.engine.NewRangeQuery(d.t.Context(), d.store, promql.NewPrometheusQueryOpts(false, 5*time.Minute), rule.Expr, began, at, time.Minute)
	if err != nil {
		d.t.Fatal(err)
	}
	defer query.Close()
	matrix, err := query.Exec(d.t.Context()).Matrix()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, series := range matrix {
		if len(series.Floats) == int(at.Sub(began)/time.Minute)+1 {
			return true
		}
	}
	return false
}

// Each alert is silent on a normal day and fires on the day that it is for. No other alert fires
// then. The schedule of charts/noonctl has the days of the lottery, and fewer alerts.
func TestAlerts(t *testing.T) {
	t.Run("lottery", func(t *testing.T) {
		same := func(text string) string { return text }
		eachDay(t, rules(t, lottery), same, same)
	})
	t.Run("noonctl", func(t *testing.T) {
		series := strings.NewReplacer(`job="demo-lottery"`, `job="here/demo-noonctl"`, `deployment="demo-lottery"`, `deployment="demo-noonctl"`)
		alerts := map[string]string{
			"LotteryNoClaimant": "NoonctlDown", "LotteryCannotClaim": "NoonctlCannotClaim",
			"LotteryNoonMissed": "NoonctlTicksSkipped", "LotteryRunsFail": "NoonctlRunsFail",
		}
		eachDay(t, rules(t, cron), series.Replace, func(alert string) string { return alerts[alert] })
	})
}

// eachDay tests the alerts of a chart, whose series and alerts have names of their own.
func eachDay(t *testing.T, all map[string]rulefmt.Rule, seriesOf, alertOf func(name string) string) {
	t.Helper()
	for name, rule := range all {
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description", name)
		}
	}
	const (
		errors    = `noonlock_script_errors_total{` + target + `,script="job_open",reason="unsent"}`
		held      = `noonlock_leases_held{` + target + `,kind="run"}`
		tried     = `noonlock_job_attempt_duration_seconds_count{` + noons + `}`
		offset    = `noonlock_job_clock_offset_seconds{` + target + `}`
		succeeded = `noonlock_job_runs_total{` + noons + `,outcome="succeeded"}`
		drawn     = `noonlock_job_last_success_timestamp_seconds{` + noons + `}`
	)
	fired := map[string]bool{}
	for _, c := range []struct {
		alert   string // "": none
		day     string
		changes map[string]string // "": the series is missing
	}{
		{"", "ordinary", nil},
		{"", "without kube-state-metrics", map[string]string{ready: ""}},

		{"LotteryNoClaimant", "no pod answers", map[string]string{`up{` + target + `}`: "0x60"}},
		{"LotteryNoClaimant", "no pod", map[string]string{`up{` + target + `}`: ""}},

		{"LotteryCannotClaim", "Redis is away", map[string]string{errors: "40x20 41+1x39"}},
		{"", "Redis was away for a minute", map[string]string{errors: "40x36 80 120x30"}},
		{"", "Redis is away for one of two", map[string]string{
			errors: "40x20 41+1x39", `up{` + young + `}`: "1x60", `noonlock_job_clock_offset_seconds{` + young + `}`: "0.01x60",
		}},
		{"LotteryCannotClaim", "Redis is away for one of two, the other is down", map[string]string{
			errors: "40x20 41+1x39", `up{` + young + `}`: "0x60", `noonlock_job_clock_offset_seconds{` + young + `}`: "0.01x60",
		}},
		{"", "Redis is there for the one that is up", map[string]string{
			`noonlock_script_errors_total{` + young + `,script="job_open",reason="unsent"}`: "40x20 41+1x39",
			`up{` + young + `}`: "0x60", `noonlock_job_clock_offset_seconds{` + young + `}`: "0.01x60",
		}},
		{"LotteryCannotClaim", "started while Redis or the database is away", map[string]string{offset: "0x60"}},
		{"", "started with Redis away for a while", map[string]string{offset: "0.01x35 0x5 0.01x20"}},
		{"LotteryCannotClaim", "no pod is ready", map[string]string{ready: "3x20 0x40"}},
		{"", "no pod was ready for a while", map[string]string{ready: "3x35 0x5 3x20"}},

		{"LotteryNoonUnfinished", "the database hangs at noon", map[string]string{held: "0x20 1x40", succeeded: "5x60"}},
		{"LotteryNoonUnfinished", "the database is away at noon", map[string]string{tried: "9x20 10+1x40", held: "0x60", succeeded: "5x60"}},
		{"", "noons that take long", map[string]string{held: "1x60", succeeded: "1x9 2x9 3x9 4x9 5x9 6x9"}},

		{"LotteryNoonMissed", "missed", map[string]string{`noonlock_job_skipped_ticks_total{` + noons + `,reason="missed"}`: "0x30 1x30"}},
		{"LotteryNoonMissed", "too late", map[string]string{`noonlock_job_skipped_ticks_total{` + noons + `,reason="deadline"}`: "0x30 1x30"}},
		{"LotteryStale", "no noon for long", map[string]string{drawn: "-93600x60"}},
		{"LotteryStale", "noons of a clock that was ahead", map[string]string{drawn: "200000x60"}},
		{"LotteryNeverDrew", "no noon ever", map[string]string{drawn: ""}},
		{"LotteryRunsFail", "failed", map[string]string{`noonlock_job_runs_total{` + noons + `,outcome="failed"}`: "2x30 3x30"}},
		{"LotteryRunsFail", "unknown", map[string]string{`noonlock_job_runs_total{` + noons + `,outcome="unknown"}`: "2x30 3x30"}},
		{"LotteryLeaseLost", "lost", map[string]string{`noonlock_lease_losses_total{` + target + `,cause="lost"}`: "1x30 2x30"}},
		{"LotteryLeaseLost", "taken over", map[string]string{`noonlock_job_takeovers_total{` + noons + `}`: "3x30 4x30"}},
	} {
		fired[alertOf(c.alert)] = true
		changed := well()
		maps.Copy(changed, c.changes)
		series := map[string]string{}
		for name, values := range changed {
			if values != "" {
				series[seriesOf(name)] = values
			}
		}
		only(t, all, c.day, series, alertOf(c.alert))
	}
	for name := range all {
		if !fired[name] {
			t.Errorf("there is no day for %s", name)
		}
	}
	for name := range fired {
		if _, ok := all[name]; !ok && name != "" {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// Events before the first scrape of a new pod are counted: its counter starts at 1. For an old
// pod that Prometheus has not scraped before, the events are old.
func TestFirstScrape(t *testing.T) {
	all := rules(t, lottery)
	for counter, alert := range map[string]string{
		`noonlock_job_skipped_ticks_total{` + young + `,name="lottery",reason="missed"}`:   "LotteryNoonMissed",
		`noonlock_job_skipped_ticks_total{` + young + `,name="lottery",reason="deadline"}`: "LotteryNoonMissed",
		`noonlock_job_skipped_ticks_total{` + young + `,name="lottery",reason="overlap"}`:  "LotteryNoonMissed",
		`noonlock_job_skipped_ticks_total{` + young + `,name="lottery",reason="paused"}`:   "",
		`noonlock_job_runs_total{` + young + `,name="lottery",outcome="failed"}`:           "LotteryRunsFail",
		`noonlock_job_runs_total{` + young + `,name="lottery",outcome="unknown"}`:          "LotteryRunsFail",
		`noonlock_job_runs_total{` + young + `,name="lottery",outcome="succeeded"}`:        "",
		`noonlock_job_takeovers_total{` + young + `,name="lottery"}`:                       "LotteryLeaseLost",
		`noonlock_lease_losses_total{` + young + `,cause="expired"}`:                       "LotteryLeaseLost",
	} {
		for start, want := range map[string]string{"_x30 1800x30": alert, "_x30 -86400x30": ""} {
			series := well()
			series[`up{`+young+`}`] = "_x30 1x30"
			series[`noonlock_job_clock_offset_seconds{`+young+`}`] = "_x30 0.01x30"
			series[`process_start_time_seconds{`+young+`}`] = start
			series[counter] = "_x30 1x30"
			only(t, all, counter+" begins at 1, process at "+start, series, want)
		}
	}
}

// only checks that exactly one alert fires, or none if the name is empty.
func only(t *testing.T, all map[string]rulefmt.Rule, what string, series map[string]string, alert string) {
	t.Helper()
	d := scraped(t, series)
	defer d.store.Close()
	for name, rule := range all {
		if got := d.fires(rule, time.Unix(40*60, 0)); got != (name == alert) {
			t.Errorf("%s: %s fires: %v", what, name, got)
		}
	}
}

// Each query of the dashboard is valid, and its metrics exist on a normal day.
func TestDashboard(t *testing.T) {
	var object struct {
		Data map[string]string `json:"data"`
	}
	rendered(t, lottery, "ConfigMap", &object)
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(object.Data["demo-lottery.json"]), &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	fill := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "here", "$job", "demo-lottery")
	for _, panel := range dashboard.Panels {
		for _, query := range panel.Targets {
			queries++
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(fill.Replace(query.Expr)); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
		}
	}
	if queries == 0 {
		t.Error("the dashboard asks for nothing")
	}
}

// The alerts of an election with charts/noonctl are valid.
func TestNoonctlRules(t *testing.T) {
	if all := rules(t, elect); len(all) != 3 || all["NoonctlNoLeader"].Expr == "" {
		t.Errorf("alerts of an election: %v", all)
	}
}
