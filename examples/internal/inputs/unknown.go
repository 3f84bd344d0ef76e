package inputs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ofServices matches variables that Kubernetes sets for Services whose names begin with
// the name of the program.
var ofServices = regexp.MustCompile(`_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$`)

// Unknown returns an error for each environment variable that begins with prefix and is not
// known. An error does not contain the variable's value.
func Unknown(names []string, prefix string, known []string) (errs []error) {
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || ofServices.MatchString(name) || slices.Contains(known, name) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s is set, but no flag has this name; it must be unset", Excerpt(name)))
	}
	return errs
}

// Excerpt returns the text in quotes, shortened if it is long.
func Excerpt(s string) string {
	const shown = 60
	if len(s) <= shown {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:shown]) + "…"
}
