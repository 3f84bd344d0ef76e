package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
)

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
