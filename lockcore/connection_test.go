package lockcore_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

// A rotation is a provider of a password that changes.
type rotation struct {
	password  atomic.Value
	listeners sync.Map
}

func (r *rotation) current() (user, password string) { return "app", r.password.Load().(string) }

func (r *rotation) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	r.listeners.Store(l, nil)
	return auth.NewBasicCredentials(r.current()), func() error { r.listeners.Delete(l); return nil }, nil
}

// rotate changes the password, and returns the number of listeners.
func (r *rotation) rotate(password string) (listeners int) {
	r.password.Store(password)
	r.listeners.Range(func(l, _ any) bool {
		listeners++
		l.(auth.CredentialsListener).OnNext(auth.NewBasicCredentials(r.current()))
		return true
	})
	return listeners
}

// The password changes thirty times. One provider announces the changes, another one has to be asked. Leases are
// renewed, locks are acquired, and the number of connections does not grow.
func TestFault71_RotatedCredentials(t *testing.T) {
	t.Parallel()
	const most = 4 + 3 + 1
	for kind, use := range map[string]func(opt *redis.Options, r *rotation){
		"streaming": func(opt *redis.Options, r *rotation) { opt.StreamingCredentialsProvider = r },
		"context": func(opt *redis.Options, r *rotation) {
			opt.CredentialsProviderContext = func(context.Context) (string, string, error) {
				user, password := r.current()
				return user, password, nil
			}
		},
		"plain": func(opt *redis.Options, r *rotation) { opt.CredentialsProvider = r.current },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			e.admin(e.Real, "acl setuser app reset on ~noonlock:* resetchannels &noonlock:* +@all >p0")
			r, opt := &rotation{}, e.Direct()
			r.rotate("p0")
			use(opt, r)
			c := e.ClientWith(opt, lockcore.Config{})
			lease := e.try(e.mutex(c, "held", ttl(30*time.Second)))
			for i := range 30 {
				e.admin(e.Real, fmt.Sprintf("acl setuser app >p%d", i+1))
				if n := r.rotate(fmt.Sprintf("p%d", i+1)); n > 2*most {
					t.Errorf("%d listeners after %d rotations", n, i)
				}
				e.admin(e.Real, fmt.Sprintf("acl setuser app <p%d", i))
				var wg sync.WaitGroup
				for n := range 8 {
					wg.Go(func() { e.unlock(e.lock(e.mutex(c, fmt.Sprint("m", n), ttl(30*time.Second)))) })
				}
				wg.Wait()
				if i%10 == 9 { // some connections are lost, too
					e.admin(e.Real, "client kill user app")
				}
				if n := e.connections("user=app"); n > 2*most {
					t.Errorf("%d connections after %d rotations", n, i+1)
				}
			}
			e.Until("no more connections than at first are left", func() bool { return e.connections("user=app") <= most })
			must(t, context.Cause(lease.Context()))
			e.unlock(lease)
		})
	}
}

// tlsEnv starts a server that speaks TLS on its own port, and returns its address and its certificate.
func tlsEnv(t *testing.T, conf string) (*env, string, *servers.Certificate) {
	t.Helper()
	c := servers.SelfSigned(t)
	e := realEnv(t, c.RedisConf(conf)...)
	return e, e.Real.SecureAddr(), c
}

// No connection can be made, for a reason that is known at once and is not temporary. The call is not retried,
// nothing was sent, and the error names the reason.
func TestFault61_NoConnectionEver(t *testing.T) {
	t.Parallel()
	e, secure, ours := tlsEnv(t, "tls-auth-clients no")
	_, private, known := tlsEnv(t, "tls-auth-clients yes")
	for _, c := range []struct {
		name, addr string
		tls        *tls.Config
		says       string
	}{
		{"an unknown authority", secure, &tls.Config{RootCAs: known.Pool, MinVersion: tls.VersionTLS12}, "certificate"},
		{"another name", secure, &tls.Config{RootCAs: ours.Pool, ServerName: "other.example", MinVersion: tls.VersionTLS12}, "other.example"},
		{"no certificate of ours", private, &tls.Config{RootCAs: known.Pool, MinVersion: tls.VersionTLS12}, "certificate required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := testenv.Options(c.addr)
			opt.TLSConfig = c.tls
			m := e.mutex(e.ClientWith(opt, lockcore.Config{}), "orders", ttl(time.Hour))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for name, acquire := range map[string]func(context.Context) (*lockcore.Lease, error){"TryLock": m.TryLock, "Lock": m.Lock} {
				_, err := acquire(ctx)
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Count(err.Error(), "\n") > 0 || lockcore.IsTemporary(err) {
					t.Errorf("%s: %q, want one line that says %q and is not temporary", name, err, c.says)
				}
				mustNotBe(t, err, lockcore.ErrUnknown, lockcore.ErrNotAcquired, context.DeadlineExceeded)
			}
		})
	}
}

// serverVariable is the URL of a server. It makes this test binary a program that loses this server.
const serverVariable = "LOCKCORE_TEST_SERVER"

func loseServer(url string) int {
	if err := tryLoseServer(url); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// tryLoseServer acquires a lock, and another one after the end of its lease, which must fail.
func tryLoseServer(url string) error {
	options, err := redisurl.Parse(url)
	if err != nil {
		return err
	}
	c, err := lockcore.NewFromOptions(options, lockcore.Config{Logger: lockcore.Discard})
	if err != nil {
		return err
	}
	m, err := c.Mutex("orders", ttl(2*time.Second))
	if err != nil {
		return err
	}
	lease, err := m.Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("locked")
	<-lease.Context().Done()
	if _, err := m.TryLock(context.Background()); err == nil {
		return errors.New("a lock was acquired without a server")
	}
	return nil
}

// Nothing is written to standard error, which is a file, when all servers and all Sentinels are lost.
func TestFault64_NothingIsWritten(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (all []*servers.RedisServer, url string){
		"Sentinel": func(t *testing.T) ([]*servers.RedisServer, string) {
			t.Helper()
			s := servers.Redis(t)
			sentinel := servers.Sentinel(t, "noon", s.Addr(), 1)
			return []*servers.RedisServer{sentinel, s}, "redis+sentinel://" + sentinel.Addr() + "?master=noon"
		},
		"cluster": func(t *testing.T) ([]*servers.RedisServer, string) {
			t.Helper()
			c := servers.Cluster(t, 3, 3)
			return slices.Concat(c.Primaries, c.Replicas), "redis+cluster://" + strings.Join(c.Addrs(), ",")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, url := start(t)
			file := call(os.Create(filepath.Join(t.TempDir(), "stderr"))).Must(t)
			defer file.Close()
			cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // the test's own binary
			cmd.Env, cmd.Stderr = append(os.Environ(), serverVariable+"="+url), file
			out := bufio.NewReader(call(cmd.StdoutPipe()).Must(t))
			must(t, cmd.Start())
			equal(t, "the program says", call(out.ReadString('\n')).Must(t), "locked\n")
			for _, s := range all {
				s.Kill()
			}
			rest, _ := out.ReadString(0)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, rest)
			}
			if written := call(os.ReadFile(file.Name())).Must(t); len(written) > 0 {
				t.Errorf("standard error: %.500s", written)
			}
		})
	}
}
