// Package docs_test compares the documentation with the code.
package docs_test

import (
	"context"
	"database/sql"
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

//go:embed readme_test.go
var thisFile string

// The bodies of these functions are the code of README.md.

func readmeDo(ctx context.Context, rdb *redis.Client, db *sql.DB) error {
	client, err := lockcore.New(rdb, lockcore.Config{}) // rdb is your *redis.Client
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	return client.Do(ctx, "reindex", lockcore.LeaseConfig{}, func(ctx context.Context) error {
		token := lockcore.FromContext(ctx).Token()
		return reindex(ctx, db, token) // one replica at a time; ctx ends with the lease
	})
}

func readmeElection(ctx context.Context, client *lockcore.Client) error {
	elector, err := election.NewLeaderElector(client, "controller", election.Callbacks{
		OnStartedLeading: func(ctx context.Context) { control(ctx) }, // returns when ctx ends
		OnStoppedLeading: func() {},
	}, election.Config{})
	if err != nil {
		return err
	}
	return elector.Run(ctx)
}

func readmeJob(ctx context.Context, runner *singleton.Runner, once *sqlonce.Once) error {
	// runner is from singleton.NewRunner(client, singleton.Config{})
	err := runner.Add("lottery", "0 12 * * *", func(ctx context.Context, run singleton.Run) error {
		_, err := once.Do(ctx, run.Marker(), drawTenWinners) // refuses a stale token
		return err
	}, singleton.JobConfig{})
	if err != nil {
		return err
	}
	return runner.Run(ctx) // on every replica
}

// They are compiled here and not run; the examples of the packages run.
var _, _, _ = readmeDo, readmeElection, readmeJob

func reindex(context.Context, *sql.DB, uint64) error { return nil }
func control(context.Context)                        {}
func drawTenWinners(context.Context, *sql.Tx) error  { return nil }

// The code of each page is in the file that compiles it, as lines or as the body of a function. The snippets of the
// README are short.
func TestCodeOfPagesIsCompiled(t *testing.T) {
	t.Parallel()
	for page, c := range map[string]struct {
		compiled       string
		blocks, length int // the number of blocks, and the most lines of one
	}{
		"../README.md":  {thisFile, 3, 10},
		"OPERATIONS.md": {operationsTest, 1, 100},
		"TESTING.md":    {testingFile, 2, 100},
	} {
		text := testenv.Call(os.ReadFile(page)).Must(t)
		blocks := goCode.FindAllStringSubmatch(string(text), -1)
		testenv.Equal(t, page+": blocks of Go", len(blocks), c.blocks)
		for _, block := range blocks {
			body := "{\n" + regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSuffix(block[1], "\n"), "\t") + "\n}\n"
			if !strings.Contains(c.compiled, "\n"+block[1]) && !strings.Contains(strings.ReplaceAll(c.compiled, "\n\n", "\n\t\n"), body) {
				t.Errorf("%s shows code that is not compiled:\n%s", page, block[1])
			}
			if n := strings.Count(block[1], "\n"); n > c.length {
				t.Errorf("%s shows %d lines, want at most %d:\n%s", page, n, c.length, block[1])
			}
		}
	}
}

// Links in the documentation lead to files of this repository, and to headings in them.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := testenv.Call(filepath.Glob("*.md")).Must(t)
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md", "../adapters/clientgo/README.md",
		"../charts/lottery/README.md", "../charts/noonctl/README.md", "../examples/leader/README.md", "../examples/lottery/README.md", "../examples/sidecar/README.md") {
		text := testenv.Call(os.ReadFile(page)).Must(t)
		for _, link := range linkTarget.FindAllStringSubmatch(string(text), -1) {
			if link[1] == "" {
				link[1] = link[2]
			}
			if strings.Contains(link[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			} else if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, link[1])
			}
		}
	}
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)]+)\)| src(?:set)?="([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(t *testing.T, page string) (all []string) {
	t.Helper()
	text := testenv.Call(os.ReadFile(page)).Must(t)
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
}

// Each target of the Makefile is described for contributors.
func TestTargetsAreDescribed(t *testing.T) {
	t.Parallel()
	makefile := testenv.Call(os.ReadFile("../Makefile")).Must(t)
	page := testenv.Call(os.ReadFile("../CONTRIBUTING.md")).Must(t)
	targets := regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(makefile), -1)
	if len(targets) < 10 {
		t.Errorf("the Makefile has %d targets", len(targets))
	}
	for _, target := range targets {
		if !regexp.MustCompile("make " + target[1] + `[^a-z-]`).Match(page) {
			t.Errorf("CONTRIBUTING.md does not name make %s", target[1])
		}
	}
}
