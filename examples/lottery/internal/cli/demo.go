package cli

import (
	"context"
	"io"
	"os"

	"github.com/noonlock/noonlock/examples/lottery/internal/demo"
)

func demonstrate(ctx context.Context, p Process, s *settings, args []string) error {
	if err := s.parse(args); err != nil {
		return badArguments(err)
	}
	return demo.Run(ctx, demo.Config{Entrants: p.Bundled, Out: p.Stdout, Colours: wantsColours(p.Stdout, p.Getenv)})
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
