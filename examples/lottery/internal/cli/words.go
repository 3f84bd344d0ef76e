package cli

import (
	"strconv"
	"strings"
)

// counted returns a number with a noun in singular or plural.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// plain returns the text of an error without the name of its package, which users of the
// command do not know.
func plain(err error) string {
	text := err.Error()
	for _, name := range []string{"draw: ", "entrants: ", "noon: ", "store: ", "serve: ", "sqlonce: ", "singleton: ", "lockcore: ", "redisurl: "} {
		if short, found := strings.CutPrefix(text, name); found {
			return short
		}
	}
	return text
}
