package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/internal/overview"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of noonctl, its commit and that of Go", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			built := output.Built()
			if encoded, err := a.encode(built); encoded {
				return err
			}
			lines := []overview.Cell{{Label: "version", Text: built.Version}, {Label: "commit", Text: built.Commit}, {Label: "go", Text: built.Go}}
			return a.describe("", time.Time{}, overview.Description{Lines: lines})
		},
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	return cmd
}
