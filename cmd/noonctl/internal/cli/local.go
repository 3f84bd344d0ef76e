package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

func (a *app) nextCommand() *cobra.Command {
	var zone, name string
	var count int
	cmd := &cobra.Command{
		Use: "next SCHEDULE [flags]", Short: "Show the next ticks of a schedule",
		Long: `next shows the ticks that a schedule has from now on, by the clock of this machine, in its time zone and in
UTC. It does not connect to Redis. In a schedule, L is the last day of the month, 15W the workday nearest to
the 15th, LW the last workday, FRI#2 the second Friday, and FRIL the last one. H is a value, and H/n each nth
one from a first value, that follows from the name of the job. So does the phase of @every.`,
		Example: `  noonctl next "0 12 L * *" --time-zone Europe/Paris
  noonctl next "H H * * *" --name backup --count 1`,
		Args: exactly("SCHEDULE"),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := parseZone(zone)
			if err != nil {
				return err
			}
			if count < 1 || count > 1000 {
				return exit.Usage(fmt.Errorf("--count is %d; it must be from 1 to 1000", count))
			}
			s, err := schedule.Parse(args[0], schedule.Config{TimeZone: at, Name: name})
			if err != nil {
				return exit.Usage(err)
			}
			for tick := s.Next(time.Now()); count > 0 && !tick.IsZero(); count-- {
				fmt.Fprintf(a.out, "%s   %s\n", tick.In(at).Format("Mon 2006-01-02 15:04:05 -07:00"), singleton.RunID{Tick: tick}.Name())
				tick = s.Next(tick)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&zone, "time-zone", "UTC", "time zone of the schedule, such as Europe/Paris")
	flags.StringVar(&name, "name", "", "name of the job, for H and @every")
	flags.IntVar(&count, "count", 5, "number of ticks")
	return cmd
}

func parseZone(name string) (*time.Location, error) {
	zone, rule := input.Zone(name)
	if rule != "" {
		return nil, exit.Usage(fmt.Errorf("--time-zone is %q; it must be %s", name, rule))
	}
	return zone, nil
}

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
	defer os.Remove(target.Name()) //nolint:errcheck // after the renaming, the name is gone
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Chmod(0o755), target.Close()); err != nil {
		return err
	}
	return os.Rename(target.Name(), filepath.Join(folder, "noonctl"))
}
