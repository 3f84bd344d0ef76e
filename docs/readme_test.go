// Package docs_test holds the documentation against the code.
package docs_test

import (
	"context"
	"database/sql"
	_ "embed"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
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
	return client.Do(ctx, "reindex", func(ctx context.Context, token uint64) error {
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

const readmeSnippets, longestSnippet = 3, 10

func TestReadmeCodeIsThisCode(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != readmeSnippets {
		t.Errorf("README.md has %d blocks of Go, want %d", len(blocks), readmeSnippets)
	}
	for _, block := range blocks {
		var body strings.Builder
		for line := range strings.Lines(block[1]) {
			body.WriteString("\t" + line)
		}
		if !strings.Contains(thisFile, "{\n"+body.String()+"}\n") {
			t.Errorf("README.md shows code that is no body of a function in this file:\n%s", block[1])
		}
		if n := strings.Count(block[1], "\n"); n > longestSnippet {
			t.Errorf("README.md shows %d lines, want at most %d:\n%s", n, longestSnippet, block[1])
		}
	}
}

// Links of README.md to files of this repository lead somewhere.
func TestReadmeLinks(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(string(readme), -1)
	if len(links) == 0 {
		t.Fatal("README.md has no links")
	}
	for _, link := range links {
		if strings.Contains(link[1], "://") {
			continue
		}
		if _, err := os.Stat("../" + link[1]); err != nil {
			t.Errorf("README.md links to nothing: %v", err)
		}
	}
}
