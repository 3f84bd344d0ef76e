package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/lockcore"
)

func operator() string {
	host, _ := os.Hostname()
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + cmp.Or(host, "unknown-host")
}

// connect makes the Client. With a Logger, it sends one request in the background, and logs why Redis does not answer.
// Otherwise it sends nothing.
func (a *app) connect(ctx context.Context, cfg lockcore.Config) (closeAll func(), err error) {
	if err := a.locate(a.command, a.minReplicas); err != nil {
		return nil, err
	}
	logs := cfg.Logger.GetSink() != nil
	cfg.Logger = cmp.Or(cfg.Logger, lockcore.Discard) // other commands print what fails
	cfg.Prefix, cfg.Identity, cfg.MinReplicas = a.prefix, cmp.Or(cfg.Identity, operator()), a.minReplicas
	if len(a.options) == 1 {
		a.client, err = lockcore.NewFromOptions(a.options[0], cfg)
	} else {
		var all []redis.UniversalClient
		for _, options := range a.options {
			rdb := redis.NewUniversalClient(options)
			defer rdb.Close() // lockcore makes connections of its own with the same options
			all = append(all, rdb)
		}
		a.client, err = lockcore.NewQuorum(all, lockcore.QuorumConfig{Config: cfg, List: a.list, MaxTTL: a.maxTTL})
	}
	if err != nil {
		return nil, err
	}
	probing, stop := context.WithCancel(ctx)
	var probe sync.WaitGroup
	if logs && a.command != "run" { // run ends with the error of its first request
		probe.Go(func() { a.logSilence(probing, cfg.Logger) })
	}
	return func() {
		stop()
		probe.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = a.client.Close(ctx) // at worst, a lock expires with its TTL
	}, nil
}

// logSilence logs why Redis does not answer, for commands that retry until it does. The errors that the library logs
// do not say that only one side uses TLS, and which flag is for a private authority.
func (a *app) logSilence(ctx context.Context, log logr.Logger) {
	_, err := ask(ctx, a, func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, "noonctl") })
	if _, timedOut := errors.AsType[*timeoutError](err); timedOut || (lockcore.IsTemporary(err) || isUntrusted(err)) && ctx.Err() == nil {
		log.Info("Redis does not answer yet", "err", explain(ctx, err, a.options...).Error())
	}
}

// withClient returns the RunE of a command that needs the Client.
func (a *app) withClient(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return err
		}
		defer closeAll()
		by := lockcore.Operator{Reason: a.reason} // Who is the identity of the Client
		return work(lockcore.WithOperator(cmd.Context(), by), args)
	}
}

// within returns a context that ends --timeout after the last call of answered.
func (a *app) within(ctx context.Context) (bounded context.Context, answered, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(a.timeout, func() { cancel(errTimeout) })
	return bounded, func() { timer.Reset(a.timeout) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// markTimeout returns a *timeoutError if err is the error of a request whose context errTimeout has ended.
func markTimeout(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return &timeoutError{err}
	}
	return err
}

// ask calls a function with a context that ends after --timeout.
func ask[T any](ctx context.Context, a *app, call func(ctx context.Context) (T, error)) (T, error) {
	bounded, _, stop := a.within(ctx)
	defer stop()
	value, err := call(bounded)
	return value, markTimeout(bounded, err)
}
