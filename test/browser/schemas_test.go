package browser_test

import (
	"os"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Helm compiles the patterns in the schemas of the charts as expressions of Go. Editors and other validators compile
// them as those of ECMAScript.
func TestPatternsOfCharts(t *testing.T) {
	t.Parallel()
	b := newTab(testenv.OnServer(t))
	for _, chart := range []string{"lottery", "noonctl"} {
		text := testenv.Call(os.ReadFile("../../charts/" + chart + "/values.schema.json")).Must(t)
		errs := eval[[]string](b, `(() => {
			const errs = [];
			const compile = (pattern) => {
				try { new RegExp(pattern, 'u'); errs.push(''); } catch (err) { errs.push(String(err)); }
			};
			JSON.parse(%s, (key, value) => {
				if (key === 'pattern') compile(value);
				if (key === 'patternProperties') Object.keys(value).forEach(compile);
				return value;
			});
			return errs;
		})()`, string(text))
		if len(errs) < 30 {
			t.Errorf("the schema of %s has %d patterns", chart, len(errs))
		}
		for _, err := range errs {
			if err != "" {
				t.Errorf("the schema of %s: %s", chart, err)
			}
		}
	}
}
