package statusz

import (
	"cmp"
	"net/http"

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

	// Operator returns who sends a request, such as the name of an authenticated user. Replicas
	// log it together with the reason. So does the holder of a lock that is released. Default: the
	// identity of the Client.
	Operator func(*http.Request) string
}

// Handler returns the page about everything that the Client can list. It sends nothing until a
// browser opens the page. Mount it at a path that ends with a slash. The error is a
// *noonlock.ConfigError.
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
	return &Page{cfg: cfg, reader: newReader(client)}, nil
}
