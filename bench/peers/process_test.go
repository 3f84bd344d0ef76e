package peers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// roleVariable makes this test binary another process of a benchmark. orderVariable is an order
// in JSON.
const (
	roleVariable  = "NOONLOCK_PEERS_ROLE"
	orderVariable = "NOONLOCK_PEERS_ORDER"
)

// An order is what a process has to do.
type order struct {
	Library, Addr, Name string
	TTL                 time.Duration
	Clients             int
}

// process starts a process that ends with the benchmark. Its first line is that it is ready.
func (x *bench) process(role string, o order) (kill func(), line string) {
	x.b.Helper()
	text, err := json.Marshal(o)
	x.check(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, orderVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // closed when this process ends
	x.check(err)
	out, err := cmd.StdoutPipe()
	x.check(err)
	x.check(cmd.Start())
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // reports the kill
		})
	}
	x.b.Cleanup(kill)
	line, err = bufio.NewReader(out).ReadString('\n')
	x.check(err)
	return kill, strings.TrimSpace(line)
}

// play is the life of such a process. It ends when it is killed, or when the process that started
// it has ended.
func play(role string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(orderVariable)), &o); err != nil {
		return err
	}
	l, err := byName(o.Library)
	if err != nil {
		return err
	}
	switch role {
	case "holder":
		return holdUntilKilled(l, o)
	case "followers":
		return follow(l, o)
	}
	return fmt.Errorf("there is no role %q", role)
}

func holdUntilKilled(l library, o order) error {
	c, err := l.open(o.Addr, options{ttl: o.TTL})
	if err != nil {
		return err
	}
	ctx := context.Background()
	h, err := c.lock(ctx, o.Name)
	if err != nil {
		return err
	}
	return h(ctx, func() {
		fmt.Println("holds")
		<-time.After(time.Hour)
	})
}

// followed is what a process with followers uses in addition to a process without.
type followed struct {
	Memory, Goroutines, Sockets float64
}

// follow waits for a lock with many clients, and measures this process.
func follow(l library, o order) error {
	before, err := used()
	if err != nil {
		return err
	}
	ctx := context.Background()
	for range o.Clients {
		c, err := l.open(o.Addr, options{ttl: o.TTL, connections: 10})
		if err != nil {
			return err
		}
		h, err := c.lock(ctx, o.Name)
		if err != nil {
			return err
		}
		go func() {
			err := h(ctx, func() {})
			fmt.Fprintln(os.Stderr, l.name, "a follower has stopped waiting:", err)
		}()
	}
	<-time.After(3 * time.Second) // all wait
	now, err := used()
	if err != nil {
		return err
	}
	now.Memory -= before.Memory
	now.Goroutines -= before.Goroutines + float64(o.Clients) // those that call lock
	now.Sockets -= before.Sockets
	if err := json.NewEncoder(os.Stdout).Encode(now); err != nil {
		return err
	}
	<-time.After(time.Hour)
	return nil
}

func used() (followed, error) {
	u := followed{Memory: heapInUse(), Goroutines: float64(runtime.NumGoroutine())}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, err
	}
	for _, f := range files {
		// The descriptor of the directory itself is closed again.
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			u.Sockets++
		}
	}
	return u, nil
}
