// Command testreport reads the output of `go test -json`. It prints a line for each
// package, all output of failed tests, and a summary. The summary ends with two lines:
//
//	All tests took 4m12s; 1 skipped: needs a cluster
//	12 passed, 0 failed, 1 skipped
//
//	{ go test -json ./...; } | testreport [-summary FILE]
//
// Each test and each subtest counts once. A test with subtests counts only if it failed or
// was skipped itself. A package that fails without a failed test, for example because it
// does not build, counts as one failure. Tests that were still running when their package
// ended, as after a panic or a timeout, count as failed.
//
// If no package ends for half a minute, a line names the tests that are still running. The
// exit status is 1 if anything failed or no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// silence is the longest time without a line of output.
const silence = 30 * time.Second

func main() {
	summary := flag.String("summary", "", "also write the summary's last two lines to this `file`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "testreport: unknown argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	r := newReport(os.Stdout, time.Now)
	if err := read(os.Stdin, r); err != nil {
		fmt.Fprintf(os.Stderr, "testreport: reading the output of go test: %v\n", err)
		r.failed++
	}
	closing := r.finish()
	if *summary != "" {
		if err := os.WriteFile(*summary, []byte(closing), 0o644); err != nil {
			fmt.Fprintf(os.Stderr, "testreport: %v\n", err)
			os.Exit(1)
		}
	}
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

// read passes the lines of input to the report.
func read(input io.Reader, r *report) error {
	lines := make(chan []byte)
	result := make(chan error, 1)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(input) // not a Scanner: a line can have any length
		for {
			line, err := reader.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				if err != io.EOF {
					result <- err
				}
				close(result)
				return
			}
		}
	}()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return <-result
			}
			var e event
			// go test prints some of its own messages as plain text.
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				r.print("%s", line)
				continue
			}
			r.add(e)
		case <-ticker.C:
			r.stillRunning()
		}
	}
}
