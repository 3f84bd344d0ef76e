// Package alerts holds the chart's alerts and dashboard against Prometheus itself.
// There is nothing in it but tests.
package alerts

import (
	"encoding/json"
	"fmt"
	"log/slog"
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
	"sigs.k8s.io/yaml"
)

// rendered returns the objects of that kind in the chart, with everything switched
// on. The helm to use is named by HELM.
func rendered(t *testing.T, kind string, into any) {
	t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal("HELM is not set; it must name the program helm")
	}
	out, err := exec.CommandContext(t.Context(), helm, "template", "demo", "../../../charts/lottery", "--namespace", "here",
		"--values", "../../../charts/lottery/tests/first-try.yaml", "--set", "monitoring.rules.enabled=true,monitoring.dashboard.enabled=true").Output()
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") && (kind != "ConfigMap" || strings.Contains(document, "-dashboard")) {
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the chart has no %s", kind)
}

func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	rendered(t, "PrometheusRule", &object)
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
	target = `namespace="here",job="demo-lottery",pod="a"`
	noons  = target + `,exported_job="lottery"`
)

// well is one pod on an ordinary day, a noon each hour, over 60 minutes.
func well() map[string]string {
	series := map[string]string{
		`up{` + target + `}`: "1x60",
		`noonlock_job_clock_offset_seconds{` + target + `}`:               "0.01x60",
		`noonlock_job_last_success_timestamp_seconds{` + noons + `}`:      "0x60",
		`noonlock_lease_losses_total{` + target + `,cause="lost"}`:        "1x60",
		`noonlock_lease_losses_total{` + target + `,cause="max_hold"}`:    "1x30 2x30",
		`noonlock_job_takeovers_total{` + noons + `}`:                     "3x60",
		`noonlock_job_runs_total{` + noons + `,outcome="succeeded"}`:      "5x30 6x30",
		`noonlock_job_skipped_ticks_total{` + noons + `,reason="paused"}`: "0x30 7x30",
	}
	for _, outcome := range []string{"failed", "unknown", "lost"} {
		series[`noonlock_job_runs_total{`+noons+`,outcome="`+outcome+`"}`] = "2x60"
	}
	for _, reason := range []string{"missed", "overlap", "deadline"} {
		series[`noonlock_job_skipped_ticks_total{`+noons+`,reason="`+reason+`"}`] = "0x60"
	}
	return series
}

// fires tells whether the expression is true at the instant.
func fires(t *testing.T, expr string, series map[string]string, at time.Time) bool {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for name, values := range series {
		fmt.Fprintf(&load, "  %s %s\n", name, values)
	}
	store := promqltest.LoadedStorage(t, load.String())
	defer store.Close()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(t.Context(), store, promql.NewPrometheusQueryOpts(false, 5*time.Minute), expr, at)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	vector, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(vector) > 0
}

// Each alert is silent on an ordinary day and fires on the day that it is for, and
// nothing else does.
func TestAlerts(t *testing.T) {
	all := rules(t)
	minute := func(n int) time.Time { return time.Unix(int64(n)*60, 0) }
	for name, rule := range all {
		if fires(t, rule.Expr, well(), minute(40)) {
			t.Errorf("%s fires although all is well", name)
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description", name)
		}
	}
	for _, c := range []struct {
		alert  string
		series string // the one that is different
		values string // "": it is not there
		at     time.Time
	}{
		{"LotteryNoClaimant", `up{` + target + `}`, "0x60", minute(40)},
		{"LotteryNoClaimant", `up{` + target + `}`, "", minute(40)},
		{"LotteryNoonMissed", `noonlock_job_skipped_ticks_total{` + noons + `,reason="missed"}`, "0x30 1x30", minute(40)},
		{"LotteryNoonMissed", `noonlock_job_skipped_ticks_total{` + noons + `,reason="deadline"}`, "0x30 1x30", minute(40)},
		{"LotteryStale", `noonlock_job_last_success_timestamp_seconds{` + noons + `}`, "-93600x60", minute(40)},
		{"LotteryNeverDrew", `noonlock_job_last_success_timestamp_seconds{` + noons + `}`, "", minute(40)},
		{"LotteryRunsFail", `noonlock_job_runs_total{` + noons + `,outcome="failed"}`, "2x30 3x30", minute(40)},
		{"LotteryRunsFail", `noonlock_job_runs_total{` + noons + `,outcome="unknown"}`, "2x30 3x30", minute(40)},
		{"LotteryLeaseLost", `noonlock_lease_losses_total{` + target + `,cause="lost"}`, "1x30 2x30", minute(40)},
		{"LotteryLeaseLost", `noonlock_job_takeovers_total{` + noons + `}`, "3x30 4x30", minute(40)},
		{"LotteryLeaseLost", `noonlock_job_runs_total{` + noons + `,outcome="lost"}`, "2x30 3x30", minute(40)},
		{"LotteryClockOffset", `noonlock_job_clock_offset_seconds{` + target + `}`, "-6x60", minute(40)},
	} {
		series := well()
		if _, there := series[c.series]; !there {
			t.Fatalf("the ordinary day has no series %s", c.series)
		}
		series[c.series] = c.values
		if c.values == "" {
			delete(series, c.series)
		}
		for name, rule := range all {
			if got := fires(t, rule.Expr, series, c.at); got != (name == c.alert) {
				t.Errorf("%s %q: %s fires: %v", c.series, c.values, name, got)
			}
		}
	}
}

// Each query of the dashboard can be read, and asks for a metric of the ordinary day.
func TestDashboard(t *testing.T) {
	var object struct {
		Data map[string]string `json:"data"`
	}
	rendered(t, "ConfigMap", &object)
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
