//go:build !nodemo

package cli

import (
	"context"
	"io"
	"os"

	"github.com/noonlock/noonlock/examples/lottery/internal/demo"
)

const demoHelp = `It needs only this program: the replicas share a Redis within the process and a SQLite
file in a temporary directory, and draw from a bundled list. There is a noon every
three seconds. At the second noon the drawing replica is cut off from Redis in the
middle of its transaction, and another one takes over. Then all replicas stop, and
a noon passes without any. They draw it late after a restart. The demo prints the
draws from the ledger in Redis and checks them in the database.

It takes about fifteen seconds. The exit code is 0 only if all checks pass. NO_COLOR=1
disables colours.
`

// demos returns the demo. Images are built with the tag nodemo, without it.
func demos() []command {
	return []command{{"demo", "demonstrate three replicas in one process, one of which is cut off in the middle of a draw (the default)", demoHelp, demonstrate}}
}

func demonstrate(ctx context.Context, p Process, s *settings, args []string) error {
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	return demo.Run(ctx, demo.Config{Entrants: p.Bundled, Out: p.out, Colours: wantsColours(p.Stdout, p.Getenv)})
}

// wantsColours follows https://no-color.org.
func wantsColours(w io.Writer, getenv func(string) string) bool {
	file, ok := w.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
