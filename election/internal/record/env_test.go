package record_test

import (
	"os"
	"testing"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, record.ScriptFiles, record.UseScripts))
}

func scripts() testenv.Scripts { return testenv.Scripts{Files: record.ScriptFiles} }

// Each script's header declares its arguments, and the script uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	scripts().CheckHeaders(t)
}
