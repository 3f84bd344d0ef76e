package testenv

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Series reads one series: the value of a counter or gauge, or a histogram's number of observations. It reports
// whether there is one with these labels, given as name and value in turn.
func Series(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) (value float64, found bool) {
	t.Helper()
	for _, family := range Call(reg.Gather()).Must(t) {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount()), true
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue(), true
		}
	}
	return 0, false
}
