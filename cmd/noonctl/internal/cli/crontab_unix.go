//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A cronJob is a line of a crontab, or the arguments of cron.
type cronJob struct {
	name, spec string
	argv       []string
	line       string // file and number of the line; empty for arguments
}

func (j cronJob) invalid(err error) error {
	if j.line != "" {
		err = fmt.Errorf("%s: %w", j.line, err)
	}
	return exit.Usage(err)
}

// readCrontab returns the jobs of a crontab. It does not parse their schedules.
func (a *app) readCrontab(file string) ([]cronJob, error) {
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		file, read = "standard input", func() ([]byte, error) { return io.ReadAll(a.Stdin) }
	}
	text, err := read()
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--file: %w", err))
	}
	var jobs []cronJob
	lines := map[string]int{} // line of each name
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), byteOrderMark)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		j := parseCronJob(line)
		j.line = fmt.Sprintf("%s, line %d", file, number)
		switch before := lines[j.name]; {
		case j.argv == nil:
			return nil, exit.Usage(fmt.Errorf("%s is %s; it must be a NAME, a SCHEDULE of five fields or such as @daily, and a COMMAND", j.line, input.Quote(line)))
		case j.hasSixthField():
			return nil, j.invalid(fmt.Errorf("the command is %s; it must follow a SCHEDULE of five fields, which has no seconds and no years", input.Quote(j.argv[2])))
		case before > 0:
			return nil, j.invalid(fmt.Errorf("the name is %s, as on line %d; each job must have a name of its own", input.Quote(j.name), before))
		}
		lines[j.name] = number
		jobs = append(jobs, j)
	}
	if jobs == nil {
		return nil, exit.Usage(errors.New(file + " has no job; it must have a line NAME SCHEDULE COMMAND for each"))
	}
	return jobs, nil
}

// hasSixthField reports whether the command begins with what may be a sixth field of the schedule.
func (j cronJob) hasSixthField() bool {
	word := strings.Fields(j.argv[2])[0]
	_, err := schedule.Parse("* * * * "+word, schedule.Config{Name: j.name})
	return !strings.Contains(j.spec, "@") && (err == nil || strings.Trim(word, "0123456789*/,-") == "")
}

func parseCronJob(line string) (j cronJob) {
	word := func() (first string) {
		if end := strings.IndexAny(line, " \t"); end >= 0 {
			first, line = line[:end], strings.TrimSpace(line[end:])
		} else {
			first, line = line, ""
		}
		return first
	}
	j.name = word()
	first := word()
	if strings.HasPrefix(first, "CRON_TZ=") {
		j.spec, first = first+" ", word()
	}
	j.spec += first
	words := 4
	if first == "@every" {
		words = 1
	} else if strings.HasPrefix(first, "@") {
		words = 0
	}
	for range words {
		j.spec += " " + word()
	}
	if line != "" {
		j.argv = []string{"sh", "-c", line}
	}
	return j
}
