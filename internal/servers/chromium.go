package servers

import "testing"

// Chromium returns the path of a Chromium or Chrome. Tests start it themselves.
func Chromium(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium", "google-chrome"} {
		if path := find(nil, name); path != "" {
			return path
		}
	}
	missing(tb, "chromium", "chromium")
	return ""
}
