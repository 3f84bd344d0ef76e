package singleton_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// What a Runner refuses, with the field, before any request.
func TestRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		work := func(context.Context, singleton.Run) error { return nil }
		testenv.MustIs(t, r.runner.Ready(), singleton.ErrNotReady)
		var servers []redis.UniversalClient
		for range 3 {
			servers = append(servers, lockcoretest.NewRedis(t).Client())
		}
		quorum := testenv.Call(lockcore.NewQuorum(servers, lockcore.QuorumConfig{})).Must(t)
		defer quorum.Close(t.Context())
		for what, c := range map[string]struct {
			err   error
			field string // of a *noonlock.ConfigError
			is    error
		}{
			"no client":          {err: second1(singleton.NewRunner(nil, singleton.Config{})), field: "client"},
			"NewJob, no client":  {err: second1(singleton.NewJob(nil, "a")), field: "client"},
			"Jobs, no client":    {err: second1(singleton.Jobs(t.Context(), nil, nil)), field: "client"},
			"NewJob, name":       {err: second1(singleton.NewJob(r.client, "a b")), field: "name"},
			"NewRunner, quorum":  {err: second1(singleton.NewRunner(quorum, singleton.Config{})), field: "client"},
			"NewJob, quorum":     {err: second1(singleton.NewJob(quorum, "a")), field: "client"},
			"TTL":                {err: second1(singleton.NewRunner(r.client, singleton.Config{TTL: time.Millisecond})), field: "Config.TTL"},
			"MaxConcurrentRuns":  {err: second1(singleton.NewRunner(r.client, singleton.Config{MaxConcurrentRuns: -1})), field: "Config.MaxConcurrentRuns"},
			"ValidFor":           {err: second1(singleton.NewRunner(r.client, singleton.Config{ValidFor: 10 * time.Second})), field: "Config.ValidFor"},
			"no name":            {err: r.runner.Add("", "@daily", work, singleton.JobConfig{}), field: "name"},
			"a name with braces": {err: r.runner.Add("a{b}", "@daily", work, singleton.JobConfig{}), field: "name"},
			"a long name":        {err: r.runner.Add(strings.Repeat("x", 201), "@daily", work, singleton.JobConfig{}), field: "name"},
			"a Once's name":      {err: r.runner.Add("once/x", "@daily", work, singleton.JobConfig{}), field: "name"},
			"no work":            {err: r.runner.Add("a", "@daily", nil, singleton.JobConfig{}), field: "work"},
			"no schedule":        {err: r.runner.Add("a", "", work, singleton.JobConfig{}), is: noonlock.ErrConfig},
			"a bad schedule":     {err: r.runner.Add("a", "61 * * * *", work, singleton.JobConfig{}), is: noonlock.ErrConfig},
			"Gap":                {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{Gap: -1}), field: "JobConfig.Gap"},
			"Revision":           {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{Revision: -1}), field: "JobConfig.Revision"},
			"Timeout":            {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{Timeout: -1}), field: "JobConfig.Timeout"},
			"Retry, too long":    {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{Retry: math.MaxInt64}), field: "JobConfig.Retry"},
			"Retry":              {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{Retry: -1}), field: "JobConfig.Retry"},
			"MaxAttempts":        {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{MaxAttempts: -1}), field: "JobConfig.MaxAttempts"},
			"CatchUp":            {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{CatchUp: -1}), field: "JobConfig.CatchUp"},
			"StartingDeadline":   {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{StartingDeadline: -1}), field: "JobConfig.StartingDeadline"},
			"KeepRuns":           {err: r.runner.Add("a", "@daily", work, singleton.JobConfig{KeepRuns: 1001}), field: "JobConfig.KeepRuns"},
			"Update":             {err: r.runner.Update("a", "@daily", work, singleton.JobConfig{}), field: "name"},
			"Remove":             {err: r.runner.Remove("a"), field: "name"},

			"a long name of a Once":         {err: r.runner.Once(t.Context(), strings.Repeat("n", 196), mustNotRun(t)), field: "name"},
			"a name of a Once with a brace": {err: r.runner.Once(t.Context(), "a{b", mustNotRun(t)), field: "name"},
			"a Once without work":           {err: r.runner.Once(t.Context(), "x", nil), field: "work"},
		} {
			var refused *noonlock.ConfigError
			switch {
			case c.err == nil:
				t.Errorf("%s was not refused", what)
			case c.is != nil && !errors.Is(c.err, c.is):
				t.Errorf("%s: %v, want one that is %v", what, c.err, c.is)
			case c.field != "" && (!errors.As(c.err, &refused) || !errors.Is(c.err, noonlock.ErrConfig) || refused.Field != c.field):
				t.Errorf("%s: %v, want %s refused", what, c.err, c.field)
			}
		}
		testenv.Equal(t, "keys", len(f.Raw.Keys(t.Context(), "*").Val()), 0)
		r.add("a", "@every 1m", nil, singleton.JobConfig{})
		testenv.MustIs(t, r.runner.Add("a", "@daily", work, singleton.JobConfig{}), noonlock.ErrConfig) // there is one of that name
		r.run()
		f.recorded("a", 1)
		testenv.Must(t, r.runner.Ready())
		testenv.MustIs(t, r.runner.Run(t.Context()), singleton.ErrRunning)
	})
}

func second1[T any](_ T, err error) error { return err }

// A Runner may run again after it has ended, and keeps its state.
func TestRunnerRunsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.start("a", "@every 1m", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})["a"]
		f.recorded("draw", 2)
		r.stop()
		f.Pass(3 * time.Minute)
		r.run()
		f.recorded("draw", 6)
		f.ranOnce("draw")
		f.proven("draw", parsed(t, "@every 1m"))
	})
}
