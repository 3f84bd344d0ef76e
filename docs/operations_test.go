package docs_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

//go:embed operations_test.go
var operationsTest string

// redisLines collects the log lines of go-redis in the program's logger.
type redisLines struct{ log logr.Logger }

func (r redisLines) Printf(_ context.Context, format string, v ...any) {
	r.log.Info("go-redis", "line", fmt.Sprintf(format, v...))
}

func routeRedisLines(log logr.Logger) { redis.SetLogger(redisLines{log}) }

// The code of OPERATIONS.md works.
func TestRedisLinesAreRouted(t *testing.T) { //nolint:paralleltest // go-redis has one logger
	var lines []string
	routeRedisLines(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	defer redis.SetLogger(silent{})
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a server listens on port 1")
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "failed to dial") {
		t.Errorf("lines %q", lines)
	}
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// The alerts and the dashboard of the chart use metrics that exist, as METRICS.md has them.
func TestAlertsUseDocumentedMetrics(t *testing.T) {
	t.Parallel()
	metrics := testenv.Call(os.ReadFile("METRICS.md")).Must(t)
	asked := map[string]bool{}
	for _, file := range []string{"noonctl/templates/rules.yaml", "noonctl/templates/_noonlock.tpl", "lottery/templates/rules.yaml", "lottery/files/dashboard.json"} {
		text := testenv.Call(os.ReadFile("../charts/" + file)).Must(t)
		for _, name := range regexp.MustCompile(`\b(?:noonlock|leader)_[a-z_]+`).FindAllString(string(text), -1) {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if asked[name] = true; !strings.Contains(string(metrics), "| `"+name+"` |") {
				t.Errorf("%s uses %s, which does not exist", file, name)
			}
		}
	}
	if len(asked) < 5 {
		t.Errorf("alerts and dashboard use %v", asked)
	}
}

// The first thing to do at each alert of the charts is one command.
func TestAlertsHaveACommand(t *testing.T) {
	t.Parallel()
	lottery, err1 := os.ReadFile("../charts/lottery/templates/rules.yaml")
	noonctl, err2 := os.ReadFile("../charts/noonctl/templates/rules.yaml")
	page, err3 := os.ReadFile("OPERATIONS.md")
	testenv.Must(t, errors.Join(err1, err2, err3))
	alerts := regexp.MustCompile(`(?m)^\s*- alert: (\w+)$`).FindAllStringSubmatch(string(lottery)+string(noonctl), -1)
	if len(alerts) < 14 {
		t.Fatalf("found %d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !regexp.MustCompile(`(?m)^\| ` + a[1] + " \\|[^|]+\\| `noonctl [a-z]+").Match(page) {
			t.Errorf("docs/OPERATIONS.md: the row of %s does not begin its check with a command of noonctl", a[1])
		}
	}
}
