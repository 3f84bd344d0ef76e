package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func (a *app) copyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "copy-to FOLDER", Short: "Copy noonctl to a folder, such as a volume of a pod",
		Long: `copy-to copies this program to FOLDER/noonctl. The image of noonctl has neither a shell nor cp. Run
copy-to in an init container, with a volume. A container with another image then runs
FOLDER/noonctl cron NAME SCHEDULE -- COMMAND.`,
		Args: exactly("FOLDER"),
		RunE: func(_ *cobra.Command, args []string) error { return copyTo(args[0]) },
	}
}

// copyTo replaces the file only when the copy is complete, as an init container may run again.
func copyTo(folder string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	source, err := os.Open(program)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.CreateTemp(folder, "noonctl-*")
	if err != nil {
		return err
	}
	defer os.Remove(target.Name()) //nolint:errcheck // after the renaming, it is gone
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Chmod(0o755), target.Close()); err != nil {
		return err
	}
	return os.Rename(target.Name(), filepath.Join(folder, "noonctl"))
}
