package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/console/login"
)

// The environment variables for --redis and --prefix.
const (
	redisVariable  = "NOONLOCK_REDIS"
	prefixVariable = "NOONLOCK_PREFIX"
)

// The servers are those that the flags of all commands name.
type servers struct {
	getenv  func(string) string
	urls    []string
	list    int           // lockcore.QuorumConfig.List
	maxTTL  time.Duration // lockcore.QuorumConfig.MaxTTL
	tls     login.Files
	prefix  string
	timeout time.Duration

	options []*redis.UniversalOptions // options of each server
	addrs   string                    // addresses, without user and password
	masters string                    // names that the Sentinels must know
}

func (s *servers) addFlags(root *cobra.Command, getenv func(string) string) {
	s.getenv = getenv
	flags := root.PersistentFlags()
	flags.StringArrayVar(&s.urls, "redis", nil, "URL of Redis, or of each server of a quorum (default: the environment variable "+redisVariable+")")
	flags.IntVar(&s.list, "list", 0, "of a quorum: the number of the list of servers, as in lockcore.QuorumConfig.List (default: 1)")
	flags.DurationVar(&s.maxTTL, "max-ttl", 0, "of a quorum: the longest TTL of any lease, as in lockcore.QuorumConfig.MaxTTL (default: 15s)")
	file := func(value *string, name, usage string) {
		variable := redisVariable + "_" + strings.ToUpper(name)
		flags.StringVar(value, "redis-"+name, s.getenv(variable), usage+" (default: the environment variable "+variable+")")
	}
	file(&s.tls.CA, "ca", "PEM file of the certificate authorities to trust, instead of the system's")
	file(&s.tls.Cert, "cert", "PEM file of the client certificate; reloaded for each connection")
	file(&s.tls.Key, "key", "PEM file of the private key of the client certificate")
	flags.StringVar(&s.prefix, "prefix", cmp.Or(s.getenv(prefixVariable), "noonlock"), "first part of all keys, as in lockcore.Config.Prefix; also in "+prefixVariable)
	flags.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long Redis may take to answer")
	for _, flag := range []string{"redis", "list", "max-ttl", "prefix", "timeout"} {
		_ = root.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

const (
	noNames   = "its servers have no lists of names, and describe shows one lock or election"
	noLedgers = "the ledger of a job is on one server"
)

// oneServer has the commands that need one server, each with the reason why it cannot work on a quorum.
var oneServer = map[string]string{
	"get all": noNames, "get elections": noNames, "get jobs": noNames, "get locks": noNames, "get partitions": noNames, "serve": noNames,
	"cancel": noLedgers, "cron": noLedgers, "describe job": noLedgers, "history": noLedgers, "pause": noLedgers, "rerun": noLedgers,
	"forget job": noLedgers, "resume": noLedgers, "trigger": noLedgers,
	"describe partition": "partitions are shared on one server",
	"release":            "its locks cannot be released by force", "resize": "a majority of them does not bound the number of leases", "resign": "only the process of the leader can resign",
}

// locate reads the addresses of the servers from the flags and the environment. It connects to none.
func (s *servers) locate(command string, minReplicas int) error {
	if s.timeout <= 0 {
		return exit.Usage(fmt.Errorf("--timeout is %s; it must be above 0", s.timeout))
	}
	urls := s.urls
	if len(urls) == 0 {
		urls = strings.Fields(s.getenv(redisVariable))
	}
	reason, needsOne := oneServer[command]
	switch {
	case len(urls) == 0:
		return exit.Usage(errors.New("no Redis server is given; use --redis or the environment variable " + redisVariable))
	case needsOne && len(urls) > 1:
		return exit.Usage(fmt.Errorf("%s works on one server, and %d are given: several are a quorum; %s", command, len(urls), reason))
	case (s.list != 0 || s.maxTTL != 0) && command == "doctor":
		return exit.Usage(errors.New("doctor reads the list and the longest TTL from the servers; it takes no --list and no --max-ttl"))
	case minReplicas != 0 && len(urls) > 1:
		return exit.Usage(errors.New("--min-replicas is for the replicas of one server, and several are given: the servers of a quorum have no replicas"))
	case (s.list != 0 || s.maxTTL != 0) && len(urls) == 1:
		return exit.Usage(errors.New("--list and --max-ttl are for the servers of a quorum, and one server is given"))
	}
	var addrs, masters []string
	for _, url := range urls {
		options, err := s.parse(url)
		if err != nil {
			return err
		}
		if len(urls) > 1 && options.IsClusterMode {
			return exit.Usage(errors.New("--redis is the URL of a cluster; each of several URLs must name one server of a quorum"))
		}
		s.options, addrs = append(s.options, options), append(addrs, options.Addrs...)
		if options.MasterName != "" {
			masters = append(masters, fmt.Sprintf("%q", options.MasterName))
		}
	}
	s.addrs, s.masters = show.Text(strings.Join(addrs, ", ")), strings.Join(masters, " or ")
	return nil
}

func (s *servers) parse(url string) (*redis.UniversalOptions, error) {
	credentials := login.Login{
		User: s.getenv(redisVariable + "_USERNAME"), Password: s.getenv(redisVariable + "_PASSWORD"),
		SentinelPassword: s.getenv(redisVariable + "_SENTINEL_PASSWORD"), Files: s.tls,
	}
	options, err := credentials.Options(url)
	if wrong, ok := errors.AsType[*login.FileError](err); ok {
		return nil, exit.Usage(fmt.Errorf("--redis-%s: %w", wrong.File, err))
	} else if err != nil {
		return nil, exit.Usage(fmt.Errorf("--redis: %w", err))
	}
	return options, nil
}

// named puts the names of the primaries into errors of the library, which only say "the name in MasterName".
func (s *servers) named(text string) string {
	return strings.ReplaceAll(text, "the name in MasterName", "the name "+s.masters)
}
