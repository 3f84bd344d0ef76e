package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/internal/input"
)

// byteOrderMark is what some editors put before a text.
const byteOrderMark = "\ufeff"

func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return exit.Usage(fmt.Errorf("%s needs %s", cmd.CommandPath(), strings.Join(names, " and ")))
		}
		return nil
	}
}

func parseZone(name string) (*time.Location, error) {
	zone, rule := input.Zone(name)
	if rule != "" {
		return nil, exit.Usage(fmt.Errorf("--time-zone is %q; it must be %s", name, rule))
	}
	return zone, nil
}
