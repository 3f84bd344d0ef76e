package lockcore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/lockcore"
)

// Setting up a connection needs exactly the documented rights: SELECT if the options have a
// DB. HELLO sets a ClientName. Without the right every call says so, and nothing was sent.
// HELLO and AUTH cannot be denied: a server accepts them from every user, even if the ACL
// forbids them by name. TLS needs no right.
func TestFault60_ACLOfSettingUpAConnection(t *testing.T) {
	t.Parallel()
	e, secure, c := tlsEnv(t, time.Hour, "tls-auth-clients no")
	n := 0
	// use holds a lock as a user with those rights, and returns the command that the server
	// refused.
	use := func(t *testing.T, set func(opt *redis.Options), rules ...string) (refused []string, err error) {
		t.Helper()
		n++
		user := fmt.Sprint("setup", n)
		opt := e.As(user, append(allowed(rights, ""), rules...)...)
		set(opt)
		client := e.ClientWith(opt, lockcore.Config{Identity: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		lease, err := e.mutex(client, user, ttl(time.Minute)).TryLock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		log, lerr := e.Raw.ACLLog(t.Context(), 1000).Result()
		must(e, lerr)
		for _, l := range log {
			if l.Username == user {
				refused = append(refused, strings.ToLower(l.Object))
			}
		}
		return refused, err
	}
	both := []string{"+select"}
	whole := func(opt *redis.Options) { opt.DB, opt.ClientName = 3, "replica" }
	for name, o := range map[string]struct {
		set    func(opt *redis.Options)
		rights []string
	}{
		"nothing asked for":       {func(*redis.Options) {}, nil},
		"DB":                      {func(opt *redis.Options) { opt.DB = 3 }, both},
		"ClientName":              {func(opt *redis.Options) { opt.ClientName = "replica" }, nil},
		"DB and ClientName":       {whole, both},
		"the older protocol":      {func(opt *redis.Options) { whole(opt); opt.Protocol = 2 }, both},
		"credentials of a source": {func(opt *redis.Options) { whole(opt); asSource(opt) }, both},
		"credentials that change": {func(opt *redis.Options) { whole(opt); asStream(opt) }, both},
		"TLS": {func(opt *redis.Options) {
			whole(opt)
			opt.Addr, opt.TLSConfig = secure, &tls.Config{RootCAs: c.Pool, MinVersion: tls.VersionTLS12}
		}, both},
	} {
		t.Run(name, func(t *testing.T) {
			if refused, err := use(t, o.set, append(slices.Clone(o.rights), "-hello", "-auth")...); err != nil || len(refused) > 0 {
				t.Errorf("with the documented rights: %v, refused %q", err, refused)
			}
			for i, right := range o.rights {
				refused, err := use(t, o.set, slices.Delete(slices.Clone(o.rights), i, i+1)...)
				if err == nil || !strings.Contains(err.Error(), "NOPERM") || lockcore.IsTemporary(err) {
					t.Errorf("without %s: %v, want NOPERM, which is not temporary", right, err)
				}
				mustNotBe(t, err, lockcore.ErrUnknown, lockcore.ErrNotAcquired)
				if !slices.ContainsFunc(refused, func(object string) bool { return strings.HasPrefix(right, "+"+object) }) {
					t.Errorf("without %s the server refused %q", right, refused)
				}
			}
		})
	}
}

// asSource and asStream pass the user's name and password in another way.
func asSource(opt *redis.Options) {
	user, password := opt.Username, opt.Password
	opt.Username, opt.Password = "", ""
	opt.CredentialsProviderContext = func(context.Context) (string, string, error) { return user, password, nil }
}

func asStream(opt *redis.Options) {
	source := steady{auth.NewBasicCredentials(opt.Username, opt.Password)}
	opt.Username, opt.Password = "", ""
	opt.StreamingCredentialsProvider = source
}

// steady is a provider of credentials that never change.
type steady struct{ credentials auth.Credentials }

func (s steady) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return s.credentials, func() error { return nil }, nil
}
