package release

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Renovate finds each version that is not in a go.mod or a workflow, as its patterns say: the Go of go.work,
// and the tools of the scripts.
func TestRenovateFindsVersions(t *testing.T) {
	t.Parallel()
	var config struct {
		CustomManagers []struct{ ManagerFilePatterns, MatchStrings []string }
	}
	text := testenv.Call(os.ReadFile("../../../.github/renovate.json")).Must(t)
	testenv.Must(t, json.Unmarshal(text, &config))
	for file, version := range map[string]string{
		"go.work": `\ntoolchain go`, "scripts/chart-tool.sh": `version=v\d`, "scripts/golangci-lint.sh": `version=v\d`,
	} {
		text := testenv.Call(os.ReadFile("../../../" + file)).Must(t)
		found := 0
		for _, manager := range config.CustomManagers {
			for _, pattern := range manager.MatchStrings {
				if regexp.MustCompile(strings.Trim(manager.ManagerFilePatterns[0], "/")).MatchString(file) {
					found += len(regexp.MustCompile(pattern).FindAll(text, -1))
				}
			}
		}
		if want := len(regexp.MustCompile(version).FindAll(text, -1)); found != want || want == 0 {
			t.Errorf("%s has %d versions, and Renovate finds %d", file, want, found)
		}
	}
}
