package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/statusz"
)

type serveCall struct {
	*app
	http, tokenFile, operatorHeader string
	allowActions                    bool
}

func (a *app) serveCommand() *cobra.Command {
	s := &serveCall{app: a}
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a web page that shows elections, jobs and locks",
		Long: `serve shows elections, jobs and locks on one page, which follows changes and says when it is out of date.

With --allow-actions, users of the page can pause, resume and trigger jobs, run ticks again, cancel runs, make
leaders resign, and release locks. The page asks for confirmation and for a reason. Replicas log both
user@host of serve, as the operator, and the reason; serve logs a release. With --operator-header, the
operator is the user that a proxy names in this header. serve trusts it, so all requests must come through the
proxy, and the proxy must replace the header: other clients could send any name.

Nothing is read from Redis while no browser shows the page.

Without --token-file, the address must be a loopback address, only names of this machine are accepted as
the host of a URL, and every user of this machine can open the page. With it, browsers ask for a
password, which is the content of the file; the user name does not matter. serve has no TLS: beyond
one machine, put a proxy with TLS before it, or use "kubectl port-forward" or "ssh -L".`,
		Example: `  noonctl serve
  noonctl serve --http :7475 --token-file /run/secrets/token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.http, "http", "127.0.0.1:7475", "address to answer HTTP requests at")
	flags.BoolVar(&s.allowActions, "allow-actions", false, "allow users of the page to change things")
	flags.StringVar(&s.operatorHeader, "operator-header", "", "header with the name of the user, set by a trusted proxy, such as X-Forwarded-User (default: none)")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with the password that browsers must send, of 16 bytes or more")
	return cmd
}

func (s *serveCall) run(ctx context.Context) error {
	cfg, token, err := s.configure()
	if err != nil {
		return err
	}
	closeAll, err := s.connect(ctx, lockcore.Config{Logger: s.logger()})
	if err != nil {
		return err
	}
	defer closeAll()
	cfg.AllowActions = s.allowActions
	cfg.Title = "noonlock at " + show.Text(s.addrs)
	if len(cfg.Title) > 200 {
		cfg.Title = "noonlock"
	}
	page, err := statusz.Handler(s.client, cfg)
	if err != nil {
		return err
	}
	closeServer, addr, err := listen(ctx, "http", s.http, guarded(page, token))
	if err != nil {
		return err
	}
	defer closeServer()
	defer page.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintf(s.errs, "noonctl: serving http://%s/\n", addr)
	<-ctx.Done()
	return nil
}

// configure checks the flags. The token is empty if no password is needed.
func (s *serveCall) configure() (cfg statusz.Config, token string, err error) {
	host, _, err := net.SplitHostPort(s.http)
	if err != nil {
		return cfg, "", exit.Usage(fmt.Errorf("--http is %q; it must be an address such as 127.0.0.1:7475", s.http))
	}
	if s.operatorHeader != "" {
		isInvalid := func(r rune) bool {
			return r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
		}
		if strings.ContainsFunc(s.operatorHeader, isInvalid) {
			return cfg, "", exit.Usage(fmt.Errorf("--operator-header is %q; it must be the name of a header, such as X-Forwarded-User", s.operatorHeader))
		}
		cfg.Operator = s.operator
	}
	if s.tokenFile != "" {
		content, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return cfg, "", exit.Usage(fmt.Errorf("--token-file: %w", err))
		}
		token = string(bytes.TrimSpace(bytes.TrimPrefix(content, []byte(byteOrderMark))))
		if len(token) < 16 {
			return cfg, "", exit.Usage(fmt.Errorf("--token-file contains %d bytes; it must contain 16 or more", len(token)))
		}
	}
	switch ip := net.ParseIP(host); {
	case token != "": // any host name is safe: a browser sends the token only to the name for which it was typed
	case host == "localhost", ip != nil && ip.IsLoopback():
		// Without Hosts, a site could give its own name this address, and read the page.
		cfg.Hosts = []string{"localhost", "127.0.0.1", "::1"}
		if ip != nil {
			cfg.Hosts = append(cfg.Hosts, ip.String())
		}
	default:
		return cfg, "", exit.Usage(fmt.Errorf("--http is %q, which other machines can reach; it needs --token-file", s.http))
	}
	return cfg, token, nil
}

// operator returns the name in the header of the proxy, without characters that a name may not have. If there are
// several headers, the proxy has added the last one.
func (s *serveCall) operator(r *http.Request) (name string) {
	all := r.Header.Values(s.operatorHeader)
	if len(all) == 0 {
		return ""
	}
	for _, c := range strings.TrimSpace(all[len(all)-1]) {
		if longer := name + string(c); input.Remark(longer) == "" {
			name = longer
		}
	}
	return name
}

// guarded answers only requests with the token, as the password of a browser or as a bearer token.
func guarded(next http.Handler, token string) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, ok := r.BasicAuth()
		if !ok {
			given, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		}
		// The hashes have the same length, so the time tells nothing about the token.
		if got := sha256.Sum256([]byte(given)); subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="noonctl", charset="UTF-8"`)
			http.Error(w, "noonctl: the token of --token-file is required as password", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listen answers HTTP requests at the address of a flag until closeServer is called.
func listen(ctx context.Context, flag, at string, handler http.Handler) (closeServer func(), addr string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		if wrong, ok := errors.AsType[*net.AddrError](err); ok {
			return nil, "", exit.Usage(fmt.Errorf("--%s is %q; it must be an address such as 127.0.0.1:9090: %s", flag, at, wrong.Err))
		}
		return nil, "", exit.Usage(fmt.Errorf("--%s: %w", flag, err))
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until Close
	}()
	return func() {
		server.Close()
		<-served
	}, listener.Addr().String(), nil
}
