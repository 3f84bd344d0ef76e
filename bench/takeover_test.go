package bench_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var mortal = []library{noonlock, elector, redisLock, redSync, rueidisLock}

// takeover: the process of a holder is killed, and another process waits. The time begins when
// the lock expires on the server. All libraries are measured at the same time, since they mostly
// wait.
func takeover(x *bench) {
	const ttl, keys = 3 * time.Second, 10_000
	type kind struct {
		library
		rounds int
		expire time.Duration // of the other keys
	}
	var cases []kind
	for _, l := range mortal {
		cases = append(cases, kind{l, 5, 0})
	}
	cases = append(cases, kind{noonlock, 5, time.Hour}, kind{rueidisLock, 1, time.Hour}) // the last one takes a minute
	t := x.table("", "library")
	on := make([]*server, len(cases))
	waits := make([]*client, len(cases))
	for i, c := range cases {
		on[i] = x.serve(c.library)
		_, err := on[i].rdb.Pipelined(x.ctx(), func(p redis.Pipeliner) error {
			for i := range keys {
				p.Set(x.ctx(), "other:"+strconv.Itoa(i), "value", c.expire)
			}
			return nil
		})
		x.check(err)
		waits[i] = x.open(c.library, on[i], options{ttl: ttl})
		line := c.name
		if c.expire > 0 {
			line += ", the other keys expire later"
		}
		t.lines = append(t.lines, line)
	}
	for r := range *repetitions {
		late := make([][]float64, len(cases))
		var wg sync.WaitGroup
		for i, c := range cases {
			wg.Go(func() {
				for n := range c.rounds {
					late[i] = append(late[i], x.takeOver(c.library, on[i], waits[i], fmt.Sprintf("%d-%d", r, n), ttl).Seconds()*1e3)
				}
			})
		}
		wg.Wait()
		for i, line := range t.lines {
			t.add(line, "median, ms", median(late[i]))
			t.add(line, "latest, ms", slices.Max(late[i]))
		}
	}
}

// takeOver returns how long after the end of the holder's lock the next one holds it.
func (x *bench) takeOver(l library, s *server, c *client, name string, ttl time.Duration) time.Duration {
	ctx := x.ctx()
	kill, err := startHolder(l.name, s.addr, name, ttl.String())
	if err != nil {
		x.b.Error(err)
		return 0
	}
	granted := make(chan time.Time, 1)
	h := c.lock(ctx, name)
	sleep(ctx, rand.N(200*time.Millisecond)) // so that no retry falls on the end of the TTL
	go func() {
		if err := h(ctx, func() { granted <- time.Now() }); err != nil {
			x.b.Error(l.name, err)
			granted <- time.Time{}
		}
	}()
	// At different times between two renewals.
	sleep(ctx, ttl/6+rand.N(ttl/3))
	kill()
	end, err := s.rdb.PExpireTime(ctx, fmt.Sprintf(l.key, name)).Result()
	if err != nil || end <= 0 {
		x.b.Errorf("%s: the lock ends at %v: %v", l.name, end, err)
	}
	return (<-granted).Sub(time.UnixMilli(end.Milliseconds()))
}

// holderVariable makes this test binary a process that holds a lock: the library, the address of
// the server, the lock and its TTL, in lines.
const holderVariable = "NOONLOCK_BENCH_HOLDER"

// startHolder starts such a process, and returns when it holds the lock.
func startHolder(order ...string) (kill func(), err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+strings.Join(order, "\n"))
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // closed when this process ends
	out, failed := cmd.StdoutPipe()
	if err := errors.Join(err, failed, cmd.Start()); err != nil {
		return nil, err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // reports the kill
	}, err
}

// holdUntilKilled is the life of such a process. It also ends when the process that started it has
// ended.
func holdUntilKilled(order []string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	ttl, err := time.ParseDuration(order[3])
	if err != nil {
		return err
	}
	l := mortal[slices.IndexFunc(mortal, func(l library) bool { return l.name == order[0] })]
	c, err := l.open(order[1], options{ttl: ttl})
	if err != nil {
		return err
	}
	ctx := context.Background()
	return c.lock(ctx, order[2])(ctx, func() {
		fmt.Println("holds")
		<-time.After(time.Hour)
	})
}

// followers: 200 clients wait for a lock that another client holds.
func followers(x *bench) {
	const clients, ttl = 200, 10 * time.Second
	window := max(ttl, length())
	t := x.table("", "library")
	for r := range *repetitions {
		for _, l := range []library{noonlock, blpop, redisLock, redSync, rueidisLock, etcdMutex} {
			s := x.serve(l)
			ctx, cancel := context.WithCancel(x.ctx())
			name := strconv.Itoa(r)
			opt := options{ttl: ttl}
			if l.name == redisLock.name || l.name == redSync.name {
				opt.ttl = time.Hour // these do not renew
			}
			h := x.open(l, s, opt).lock(ctx, name)
			held := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				_ = h(ctx, func() {
					close(held)
					<-ctx.Done()
				})
			})
			<-held
			memory, goroutines, sockets := heapInUse(), runtime.NumGoroutine(), x.sockets()
			all := make([]*client, clients)
			for i := range all {
				var err error
				all[i], err = l.open(s.addr, options{ttl: ttl, connections: 10})
				x.check(err)
				h := all[i].lock(ctx, name)
				wg.Go(func() {
					if err := h(ctx, func() {}); ctx.Err() == nil {
						x.b.Error(l.name, "a follower has stopped waiting:", err)
					}
				})
			}
			sleep(ctx, 3*time.Second) // all wait
			memory, sockets = heapInUse()-memory, x.sockets()-sockets
			goroutines = runtime.NumGoroutine() - goroutines - clients // those that call lock
			stop := s.count()
			sleep(ctx, window)
			sent, _ := stop()
			t.add(l.name, "commands a second", sent/window.Seconds())
			t.add(l.name, "KiB each", memory/clients/1024)
			t.add(l.name, "goroutines each", float64(goroutines)/clients)
			t.add(l.name, "connections each", sockets/clients)
			cancel()
			for _, c := range all {
				c.close()
			}
			wg.Wait()
		}
	}
}

// sockets returns how many sockets this process has open.
func (x *bench) sockets() (n float64) {
	files, err := os.ReadDir("/proc/self/fd")
	x.check(err)
	for _, f := range files {
		// The descriptor of the directory itself is closed again.
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// heapInUse returns the heap and the stacks after a garbage collection, in bytes.
func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
