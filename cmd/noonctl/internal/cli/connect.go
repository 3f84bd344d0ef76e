package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/internal/login"
	"github.com/noonlock/noonlock/lockcore"
)

// The environment variables for --redis and --prefix.
const (
	redisVariable  = "NOONLOCK_REDIS"
	prefixVariable = "NOONLOCK_PREFIX"
)

// A connection is where the flags of all commands connect to.
type connection struct {
	urls    []string
	list    int           // of the servers of a quorum
	maxTTL  time.Duration // on them
	tls     certs.Files
	prefix  string
	timeout time.Duration

	options []*redis.UniversalOptions // of each server
	addrs   string                    // of the servers, without user and password
	masters string                    // the names that the Sentinels must know, empty without them
}

func (a *app) connectionFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringArrayVar(&a.urls, "redis", nil, "URL of Redis, or of each server of a quorum (default: the environment variable "+redisVariable+")")
	flags.IntVar(&a.list, "list", 0, "of a quorum: the number of the list of servers, as in lockcore.QuorumConfig.List (default: 1)")
	flags.DurationVar(&a.maxTTL, "max-ttl", 0, "of a quorum: the longest TTL of any lease, as in lockcore.QuorumConfig.MaxTTL (default: 15s)")
	for file, f := range map[string]struct {
		value *string
		usage string
	}{
		"ca":   {&a.tls.CA, "PEM file of the certificate authorities to trust, instead of the system's"},
		"cert": {&a.tls.Cert, "PEM file of the client certificate; reloaded for each connection"},
		"key":  {&a.tls.Key, "PEM file of the private key of the client certificate"},
	} {
		variable := redisVariable + "_" + strings.ToUpper(file)
		flags.StringVar(f.value, "redis-"+file, a.Getenv(variable), f.usage+" (default: the environment variable "+variable+")")
	}
	flags.StringVar(&a.prefix, "prefix", cmp.Or(a.Getenv(prefixVariable), "noonlock"), "first part of all keys, as in lockcore.Config.Prefix; also in "+prefixVariable)
	flags.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long Redis may take to answer")
	for _, flag := range []string{"redis", "list", "max-ttl", "prefix", "timeout"} {
		_ = root.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

const (
	noNames   = "its servers have no lists of names, and describe shows one lock or election"
	noLedgers = "the ledger of a job is on one server"
)

// oneServer has the commands that cannot work on several servers, and why.
var oneServer = map[string]string{
	"get all": noNames, "get elections": noNames, "get jobs": noNames, "get locks": noNames, "get partitions": noNames, "serve": noNames,
	"cancel": noLedgers, "cron": noLedgers, "describe job": noLedgers, "history": noLedgers, "pause": noLedgers, "rerun": noLedgers,
	"forget job": noLedgers, "resume": noLedgers, "trigger": noLedgers,
	"describe partition": "partitions are shared on one server",
	"release":            "its locks cannot be released by force", "resize": "a majority of them does not bound the number of leases", "resign": "only the process of the leader can resign",
}

// A single is the value of a flag that may be given once.
type single struct {
	pflag.Value
	given *string
}

func (s *single) Set(text string) error {
	if s.given != nil && *s.given != text {
		return fmt.Errorf("it was given before as %q; it takes one value", *s.given)
	}
	s.given = &text
	return s.Value.Set(text)
}

// refuseRepeats makes flags with one value refuse another one.
func refuseRepeats(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.PersistentFlags(), cmd.Flags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, known := f.Value.(*single)
			if _, several := f.Value.(pflag.SliceValue); !several && !known {
				f.Value = &single{Value: f.Value}
			}
		})
	}
	for _, c := range cmd.Commands() {
		refuseRepeats(c)
	}
}

// locate reads the flags and the environment: where the servers are. It connects to none.
func (a *app) locate() error {
	if a.timeout <= 0 {
		return usage(fmt.Errorf("--timeout is %s; it must be above 0", a.timeout))
	}
	urls := a.urls
	if len(urls) == 0 {
		urls = strings.Fields(a.Getenv(redisVariable))
	}
	why, one := oneServer[a.command]
	switch {
	case len(urls) == 0:
		return usage(errNoServer)
	case one && len(urls) > 1:
		return usage(fmt.Errorf("%s works on one server, and %d are given: several are a quorum; %s", a.command, len(urls), why))
	case (a.list != 0 || a.maxTTL != 0) && a.command == "doctor":
		return usage(errors.New("doctor reads the list and the longest TTL from the servers; it takes no --list and no --max-ttl"))
	case a.minReplicas != 0 && len(urls) > 1:
		return usage(errors.New("--min-replicas is for the replicas of one server, and several are given: the servers of a quorum have no replicas"))
	case (a.list != 0 || a.maxTTL != 0) && len(urls) == 1:
		return usage(errors.New("--list and --max-ttl are for the servers of a quorum, and one server is given"))
	}
	var addrs, masters []string
	for _, url := range urls {
		options, err := a.parse(url)
		if err != nil {
			return err
		}
		if len(urls) > 1 && options.IsClusterMode {
			return usage(errors.New("--redis is the URL of a cluster; each of several URLs must be that of one server of a quorum"))
		}
		a.options, addrs = append(a.options, options), append(addrs, options.Addrs...)
		if options.MasterName != "" {
			masters = append(masters, fmt.Sprintf("%q", options.MasterName))
		}
	}
	a.addrs, a.masters = shown(strings.Join(addrs, ", ")), strings.Join(masters, " or ")
	return nil
}

func (a *app) parse(url string) (*redis.UniversalOptions, error) {
	from := login.Login{
		User: a.Getenv(redisVariable + "_USERNAME"), Password: a.Getenv(redisVariable + "_PASSWORD"),
		SentinelPassword: a.Getenv(redisVariable + "_SENTINEL_PASSWORD"), Files: a.tls,
	}
	options, err := from.Options(url)
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		return nil, usage(fmt.Errorf("--redis-%s: %w", wrong.File, err))
	} else if err != nil {
		return nil, usage(fmt.Errorf("--redis: %w", err))
	}
	return options, nil
}

// connect makes the Client. With a Logger it asks Redis a question in the background, and logs why
// there is no answer. Otherwise it sends nothing.
func (a *app) connect(ctx context.Context, cfg lockcore.Config) (closeAll func(), err error) {
	if err := a.locate(); err != nil {
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
	if logs && a.command != "run" { // which ends if its first request is not answered, with that error
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

// logSilence is for commands that retry until Redis answers. The errors that the library logs do
// not say that only one side uses TLS, and which flag is for a private authority.
func (a *app) logSilence(ctx context.Context, log logr.Logger) {
	_, err := asked(ctx, a, func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, "noonctl") })
	if _, away := errors.AsType[*awayError](err); away || (lockcore.IsTemporary(err) || isUntrusted(err)) && ctx.Err() == nil {
		log.Info("Redis does not answer yet", "err", explain(ctx, err, a.options...).Error())
	}
}
