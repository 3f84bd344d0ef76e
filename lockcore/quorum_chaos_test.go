package lockcore_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// quorumVariable makes this test binary a process that acquires and releases one lock of a quorum, again and again,
// until its standard input ends. It has the addresses of the servers. For each lease, the process writes the token,
// and when it began and ended to count on it.
const quorumVariable = "LOCKCORE_TEST_QUORUM"

const chaosTTL = 500 * time.Millisecond

func playQuorum(addresses string) int {
	var all []redis.UniversalClient
	for addr := range strings.SplitSeq(addresses, ",") {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr}))
	}
	c, err := lockcore.NewQuorum(all, lockcore.QuorumConfig{MaxTTL: chaosTTL})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	m, err := c.Mutex("chaos", lockcore.LeaseConfig{TTL: chaosTTL})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	for ctx.Err() == nil {
		lease, err := m.Lock(ctx)
		if err != nil {
			continue
		}
		began := time.Now()
		for n := rand.IntN(50); n == 0 && lease.Context().Err() == nil && time.Since(began) < chaosTTL; {
			time.Sleep(time.Millisecond) // a lease that is renewed
		}
		ended := time.Now()
		if lease.Remaining() > 0 {
			fmt.Println("hold", lease.Token(), began.UnixNano(), ended.UnixNano())
		} else {
			fmt.Println("lost", lease.Token(), began.UnixNano(), context.Cause(lease.Context()))
		}
		_ = lease.Unlock(context.WithoutCancel(ctx))
	}
	closing, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_ = c.Close(closing)
	return 0
}

// chaosCycles is how many leases TestQuorumChaos waits for.
func chaosCycles(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("NOONLOCK_QUORUM_CYCLES"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		return n
	}
	return 300
}

// Eight processes hand a lock on, while a random minority of five servers is killed, frozen or
// flushed at any time. No two hold it at the same time, the tokens increase, and nobody waits
// longer than a TTL and a second after the end of a lease.
//
//nolint:paralleltest // its processes load the machine so much that other tests would be late
func TestQuorumChaos(t *testing.T) {
	var all []*servers.RedisServer
	var addresses []string
	for range 5 {
		s := servers.Redis(t)
		all, addresses = append(all, s), append(addresses, s.Addr())
	}
	type hold struct {
		token        uint64
		began, ended int64
	}
	var mu sync.Mutex
	var holds []hold
	lost := 0
	var processes sync.WaitGroup
	var inputs []io.Closer
	e := &env{Env: &testenv.Env{T: t}}
	for range 8 {
		p := e.startProcess(quorumVariable + "=" + strings.Join(addresses, ","))
		inputs = append(inputs, p.Stdin)
		processes.Go(func() {
			for line := range p.Lines {
				var h hold
				_, err := fmt.Sscanf(line, "hold %d %d %d", &h.token, &h.began, &h.ended)
				mu.Lock()
				switch {
				case err == nil:
					holds = append(holds, h)
				case strings.HasPrefix(line, "lost"):
					lost++
				default:
					t.Error(line)
				}
				mu.Unlock()
			}
			must(t, p.Cmd.Wait())
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(holds)
	}
	want := chaosCycles(t)
	faults := map[string]int{}
	deadline := time.Now().Add(patience + time.Duration(want)*50*time.Millisecond)
	for count() < want && time.Now().Before(deadline) && !t.Failed() {
		for _, i := range rand.Perm(5)[:1+rand.IntN(2)] {
			s := all[i]
			switch rand.IntN(4) {
			case 0:
				faults["killed"]++
				s.Kill()
				time.Sleep(rand.N(chaosTTL))
				s.Restart(t)
			case 1:
				faults["restarted"]++
				s.Restart(t)
			case 2:
				faults["frozen"]++
				s.Pause()
				time.Sleep(rand.N(2 * chaosTTL))
				s.Resume()
			case 3:
				faults["flushed"]++
				rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
				must(t, rdb.FlushAll(t.Context()).Err())
				_ = rdb.Close()
			}
		}
		for _, s := range all {
			chaosGrants(t, s)
		}
		time.Sleep(rand.N(chaosTTL / 2))
	}
	for _, end := range inputs {
		must(t, end.Close())
	}
	processes.Wait()
	if len(holds) < want {
		t.Fatalf("%d leases, want %d", len(holds), want)
	}
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.began, b.began) })
	longest := time.Duration(0)
	for i, h := range holds[1:] {
		before := holds[i]
		if h.began < before.ended {
			t.Errorf("leases %d and %d overlap by %v", before.token, h.token, time.Duration(before.ended-h.began))
		}
		if h.token <= before.token {
			t.Errorf("token %d after %d", h.token, before.token)
		}
		longest = max(longest, time.Duration(h.began-before.ended))
	}
	if longest > chaosTTL+time.Second {
		t.Errorf("the lock was free for %v", longest)
	}
	servers.Count(t, "%d leases of a quorum of 5 by 8 processes, with %v servers; %d leases were lost; free for at most %v", len(holds), faults, lost, longest.Round(time.Millisecond))
}

// chaosGrants waits until a server grants locks: another loss of data would otherwise concern more than a minority.
func chaosGrants(t *testing.T, s *servers.RedisServer) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		marker := rdb.HGetAll(t.Context(), "noonlock:quorum").Val()
		after, err := strconv.ParseInt(marker["after"], 10, 64)
		now := rdb.Time(t.Context()).Val()
		if err == nil && strings.Contains(rdb.Info(t.Context(), "server").Val(), "run_id:"+marker["run"]) && now.UnixMilli() >= after {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server at %s is not let in: %v", s.Addr(), marker)
		}
	}
}
