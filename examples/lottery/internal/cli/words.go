package cli

import (
	"strconv"
	"strings"
)

// counted is a number of things in words.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// plain is an error without the name of the package that it begins with: whoever
// has typed a command has not heard of our packages.
func plain(err error) string {
	text := err.Error()
	for _, name := range []string{"draw: ", "entrants: ", "store: ", "serve: ", "sqlonce: ", "singleton: ", "lockcore: "} {
		if short, found := strings.CutPrefix(text, name); found {
			return short
		}
	}
	return text
}
