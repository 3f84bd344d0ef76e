package cli_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

var errFull = errors.New("no space left on device")

// A full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// Each command that prints fails if its output is lost, and says so in one line.
func TestFault113_LostOutput(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	e.runs("draw", "@every 1s", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{})
	e.Until("it ran", func() bool { return e.Raw.LLen(t.Context(), "noonlock:{job/draw}:runs").Val() > 1 })
	for command := range strings.SplitSeq("get jobs,get locks -o json,get locks -o yaml,get locks -o name,describe lock orders,describe job draw,"+
		"history draw,history draw -o json,doctor --observe 100ms,doctor --observe 100ms -o yaml,pause draw,resume draw,trigger draw,"+
		"release orders --yes,--help,--version,run --help,completion bash", ",") {
		args := strings.Fields(command)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		r := printTo(ctx, e.url, full{}, args...)
		if ctx.Err() != nil {
			t.Errorf("%q does not end", args)
		}
		cancel()
		check(t, r, 1, []string{"the output is not complete: ", errFull.Error()}, args)
	}
	// The code of another failure remains.
	check(t, printTo(t.Context(), e.url, full{}, "get", "jobs", "none"), 66, []string{`"none"`}, nil)
}

// printTo runs the program with another standard output.
func printTo(ctx context.Context, url string, stdout interface{ Write([]byte) (int, error) }, args ...string) result {
	var errOut bytes.Buffer
	getenv := func(name string) string { return map[string]string{"NOONLOCK_REDIS": url}[name] }
	code := cli.Run(ctx, cli.Process{Args: args, Getenv: getenv, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: &errOut})
	return result{code: code, errOut: errOut.String()}
}
