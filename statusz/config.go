package statusz

import (
	"cmp"
	"net"
	"net/http"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/lockcore"
)

// Config configures a Page. Its zero value is valid.
type Config struct {
	// Title is the heading of the page: up to 200 bytes. Default "noonlock".
	Title string

	// Hosts are the host names at which browsers may reach the page, without ports, such as
	// "localhost" and "127.0.0.1". A request with another name is refused. Default: any name.
	Hosts []string

	// AllowActions allows users of the page to pause, resume and trigger jobs, to run ticks again and
	// cancel runs, to make leaders resign, and to release locks. Everybody who reaches the handler
	// can do that, so protect it. Default: the page changes nothing.
	AllowActions bool

	// Operator returns the sender of a request, such as the name of an authenticated user. Replicas, and holders
	// of released locks, log the name together with the reason. Default: the identity of the Client.
	Operator func(*http.Request) string
}

// Handler returns the page about everything that the Client can list. The Page sends nothing until a browser opens
// it. Mount it at a path that ends with a slash. The error is a *noonlock.ConfigError.
func Handler(client *lockcore.Client, cfg Config) (*Page, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "statusz", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	cfg.Title = cmp.Or(cfg.Title, "noonlock")
	if rule := input.Fault(cfg.Title, 200, false); rule != "" {
		return nil, &noonlock.ConfigError{Package: "statusz", Field: "Config.Title", Value: input.Quote(cfg.Title), Rule: rule}
	}
	for _, host := range cfg.Hosts {
		if hostname(host) != host || host == "" {
			return nil, &noonlock.ConfigError{Package: "statusz", Field: "Config.Hosts", Value: input.Quote(host), Rule: "names in lower case or addresses, without ports and brackets"}
		}
	}
	empty := &cache{client: client, views: map[*view]struct{}{}, touched: map[key]bool{}}
	return &Page{cfg: cfg, reader: &reader{cache: empty}}, nil
}

// A Page is the handler of the page and of its parts. It is safe for concurrent use.
type Page struct {
	cfg    Config
	reader *reader
}

// Close ends the streams of all browsers, and waits for the requests that are sent for them.
// Later streams are refused. http.Server.Shutdown waits for streams, so call
// RegisterOnShutdown(page.Close) before.
func (p *Page) Close() { p.reader.close() }

// hostname returns the host of a Host header, without its port, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}
