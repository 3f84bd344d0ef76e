// Package docs_test holds the documentation against the code.
package docs_test

import (
	"context"
	"database/sql"
	_ "embed"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

//go:embed readme_test.go
var thisFile string

// What follows up to the next comment is the README's code.

func draw(ctx context.Context, rdb *redis.Client, db *sql.DB) error {
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	once, err := sqlonce.New(db, sqlonce.MySQL, sqlonce.Config{})
	if err != nil {
		return err
	}
	if err := once.CreateTables(ctx); err != nil {
		return err
	}
	jobs, err := singleton.NewRunner(client, singleton.Config{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	err = jobs.Add("lottery", "0 12 * * *", func(ctx context.Context, run singleton.Run) error {
		_, err := once.Do(ctx, run.Marker(), drawTenWinners) // in one transaction with the tick's marker
		return err
	}, singleton.JobConfig{MaxAttempts: 100}) // an hour and a half without a database
	if err != nil {
		return err
	}
	return jobs.Run(ctx) // on every replica; returns when ctx ends and the work has stopped
}

// End of the README's code.

// It is compiled here and not run, as it needs a database server.
var _ = draw

func drawTenWinners(context.Context, *sql.Tx) error { return nil }

func TestReadmeCodeIsThisCode(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```go\n")
	code, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("README.md shows no Go code")
	}
	if !strings.Contains(thisFile, "\n"+code) {
		t.Errorf("the README's code does not stand in this file, where it would be compiled:\n%s", code)
	}
}
