package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
)

// The range begins before any replica could reach Redis, and ends now, while noons are drawn.
func TestVerifySinceTheInstallation(t *testing.T) {
	t.Parallel()
	installed := time.Now().Add(-10 * playedEvery) // pulling an image takes a while
	redis := startRedis(t)
	shared := []string{
		"--redis=redis://" + redis.Addr(), "--database=sqlite:" + filepath.Join(t.TempDir(), "lottery.db"),
		"--winners=3",
	}
	replica := func() *replica {
		return serve(t, append(shared, "--schedule=@every "+playedEvery.String(), "--lease=1s", "--entrants="+write(t, "entrants.csv", fiveEntrants))...)
	}
	verify := func() (code int, stdout, stderr string) {
		return run(t.Context(), nil, append(append([]string{"verify"}, shared...), "--since="+installed.Format(time.RFC3339Nano), "--until=now")...)
	}
	r := replica()
	r.await("run ended", 1)
	for n := range 5 {
		r.await("draw committed", 2*n+3)
		code, stdout, stderr := verify()
		if code != cli.Done || !strings.HasPrefix(stdout, "beginning   ") || !strings.Contains(stdout, "the ledger began then") {
			t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
		}
	}
	r.end()

	// Redis has lost all data, and no replica is left to restore it. A new ledger excuses
	// no missing noon.
	redis.FlushAll()
	first := r.logs.Entries()
	r = replica()
	r.await("run ended", 1)
	code, stdout, stderr := verify()
	var tick time.Time
	for _, e := range first {
		if e.Message == "draw committed" {
			tick = e.Tick
			break
		}
	}
	if code != cli.Failed || !strings.Contains(stdout, "\nunledgered  "+tick.UTC().Format("2006-01-02 15:04:05.999")) {
		t.Errorf("after a loss: exit code %d; the draw of %v should be unledgered\n%s%s", code, tick, stdout, stderr)
	}
}
