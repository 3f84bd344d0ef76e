package peers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// takeover: the process of a holder is killed, and another process waits. The time begins when
// the lock expires on the server. All libraries are measured at the same time, since they mostly
// wait.
func takeover(x *bench) {
	const ttl, keys = 3 * time.Second, 10_000
	cases := []struct {
		library
		rounds int
		expire time.Duration // of the other keys
	}{
		{noonlock, 5, 0},
		{redisLock, 5, 0},
		{redSync, 5, 0},
		{rueidisLock, 5, 0},
		{etcdMutex, 5, 0},
		{noonlock, 5, time.Hour},
		{rueidisLock, 1, time.Hour}, // takes a minute
	}
	t := x.table("", "library")
	on := make([]*server, len(cases))
	waits := make([]*client, len(cases))
	for i, c := range cases {
		on[i] = x.serve(c.library)
		on[i].fill(keys, c.expire)
		waits[i] = x.open(c.library, on[i], options{ttl: ttl})
		line := c.name
		if c.expire > 0 {
			line += ", the other keys expire later"
		}
		t.lines = append(t.lines, line)
	}
	var mu sync.Mutex
	for r := range *repetitions {
		var wg sync.WaitGroup
		for i, c := range cases {
			wg.Go(func() {
				var late []float64
				for n := 0; len(late) < c.rounds && !x.b.Failed(); n++ {
					if after, ok := x.takeOver(c.library, on[i], waits[i], fmt.Sprintf("%d-%d", r, n), ttl); ok {
						late = append(late, after.Seconds()*1e3)
					}
				}
				if x.b.Failed() {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				t.add(t.lines[i], "median, ms", median(late))
				t.add(t.lines[i], "latest, ms", late[c.rounds-1])
			})
		}
		wg.Wait()
	}
}

// takeOver returns how long after the end of the holder's lock the next one holds it. ok is false
// if that end is not known.
func (x *bench) takeOver(l library, s *server, c *client, name string, ttl time.Duration) (after time.Duration, ok bool) {
	ctx := x.ctx()
	kill, _ := x.process("holder", order{Library: l.name, Addr: s.addr, Name: name, TTL: ttl})
	h := x.hold(ctx, c, name)
	sleep(ctx, rand.N(200*time.Millisecond)) // so that no retry falls on the end of the TTL
	granted := make(chan time.Time, 1)
	go func() {
		if err := h(ctx, func() { granted <- time.Now() }); err != nil {
			x.b.Error(l.name, err)
			granted <- time.Time{}
		}
	}()
	// At different times between two renewals.
	sleep(ctx, ttl/6+rand.N(ttl/3))
	kill()
	end, ok := s.expires(l, name)
	return (<-granted).Sub(end), ok
}

// fill writes keys that have nothing to do with a lock.
func (s *server) fill(keys int, expire time.Duration) {
	s.x.b.Helper()
	ctx := s.x.ctx()
	if s.redis != nil {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range keys {
				p.Set(ctx, "other:"+strconv.Itoa(i), "value", expire)
			}
			return nil
		})
		s.x.check(err)
		return
	}
	c := s.etcdClient()
	defer c.Close()
	const most = 100 // of one transaction
	for i := 0; i < keys; i += most {
		var puts []clientv3.Op
		for j := range most {
			puts = append(puts, clientv3.OpPut("other/"+strconv.Itoa(i+j), "value"))
		}
		_, err := c.Txn(ctx).Then(puts...).Commit()
		s.x.check(err)
	}
}

func (s *server) etcdClient() *clientv3.Client {
	s.x.b.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, Logger: zap.NewNop()})
	s.x.check(err)
	return c
}

// expires returns when a lock expires whose holder is dead.
func (s *server) expires(l library, name string) (at time.Time, ok bool) {
	ctx := s.x.ctx()
	if s.redis != nil {
		at, err := s.rdb.PExpireTime(ctx, l.key(name)).Result()
		if err != nil {
			s.x.b.Error(l.name, err)
		}
		return time.UnixMilli(at.Milliseconds()), at > 0
	}
	c := s.etcdClient()
	defer c.Close()
	first, err := c.Get(ctx, "/"+name+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(first.Kvs) == 0 {
		s.x.b.Errorf("etcd has no holder: %v", err)
		return time.Time{}, false
	}
	// etcd tells whole seconds, rounded down. So one of them is over when the answer changes.
	for last := int64(0); ; sleep(ctx, time.Millisecond) {
		left, err := c.TimeToLive(ctx, clientv3.LeaseID(first.Kvs[0].Lease))
		switch {
		case err != nil:
			s.x.b.Error("etcd:", err)
			return time.Time{}, false
		case last > left.TTL:
			return time.Now().Add(time.Duration(last) * time.Second), true
		case left.TTL <= 0:
			return time.Time{}, false // asked too late
		}
		last = left.TTL
	}
}

// followers: one process has 200 clients that wait for a lock. Another process holds it.
func followers(x *bench) {
	const clients = 200
	const ttl = 10 * time.Second
	window := max(ttl, length())
	libraries := []library{noonlock, blpop, redisLock, redSync, rueidisLock, etcdMutex}
	t := x.table("", "library")
	for r := range *repetitions {
		for _, l := range libraries {
			s := x.serve(l)
			ctx, cancel := context.WithCancel(x.ctx())
			name := strconv.Itoa(r)
			opt := options{ttl: ttl}
			if l.name == redisLock.name || l.name == redSync.name {
				opt.ttl = time.Hour // these do not renew
			}
			h := x.hold(ctx, x.open(l, s, opt), name)
			held, end := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				_ = h(ctx, func() {
					close(held)
					<-end
				})
			})
			<-held
			kill, line := x.process("followers", order{Library: l.name, Addr: s.addr, Name: name, TTL: ttl, Clients: clients})
			var f followed
			x.check(json.Unmarshal([]byte(line), &f))
			stop := s.count()
			sleep(ctx, window)
			sent, _ := stop()
			kill()
			close(end)
			wg.Wait()
			cancel()
			t.add(l.name, "commands a second", sent/window.Seconds())
			t.add(l.name, "KiB each", f.Memory/clients/1024)
			t.add(l.name, "goroutines each", f.Goroutines/clients)
			t.add(l.name, "connections each", f.Sockets/clients)
		}
	}
}
