package docs_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A recorder collects the names that are registered with it.
type recorder struct {
	prometheus.Registerer
	rows []string
}

var described = regexp.MustCompile(`fqName: "(.*)", help: "(.*?)", (?:unit: ".*", )?constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 10)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			return fmt.Errorf("cannot read %s", d)
		}
		labels := strings.ReplaceAll(parts[3], ",", ", ")
		r.rows = append(r.rows, fmt.Sprintf("| `%s` | %s | %s | %s |", parts[1], typeOf(c), labels, parts[2]))
	}
	return r.Registerer.Register(c)
}

func typeOf(c prometheus.Collector) string {
	name := fmt.Sprintf("%T", c)
	for _, kind := range []string{"counter", "histogram", "gauge"} {
		if strings.Contains(strings.ToLower(name), kind) {
			return kind
		}
	}
	return name
}

// docs/METRICS.md has a row for each metric that the packages register, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	reg := &recorder{Registerer: prometheus.NewRegistry()}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	client := testenv.Call(lockcore.New(rdb, lockcore.Config{Registerer: reg})).Must(t)
	defer client.Close(t.Context())
	several, err := lockcore.NewQuorum([]redis.UniversalClient{rdb, rdb, rdb}, lockcore.QuorumConfig{Config: lockcore.Config{Registerer: reg}})
	testenv.Must(t, err)
	defer several.Close(t.Context())
	if _, err := singleton.NewRunner(client, singleton.Config{}); err != nil {
		t.Fatal(err)
	}
	callbacks := election.Callbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
	if _, err := election.NewLeaderElector(client, "orders", callbacks, election.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := partition.NewRunner(client, "orders", 1, func(context.Context, int) {}, partition.Config{}); err != nil {
		t.Fatal(err)
	}
	if len(reg.rows) < 20 {
		t.Fatalf("%d metrics were registered", len(reg.rows))
	}
	text := testenv.Call(os.ReadFile("METRICS.md")).Must(t)
	var documented []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			documented = append(documented, strings.TrimSpace(line))
		}
	}
	slices.Sort(documented)
	slices.Sort(reg.rows)
	for _, row := range reg.rows {
		if !slices.Contains(documented, row) {
			t.Errorf("METRICS.md does not have the row\n%s", row)
		}
	}
	for _, row := range documented {
		if !slices.Contains(reg.rows, row) {
			t.Errorf("METRICS.md has a row of no metric:\n%s", row)
		}
	}
}
