package output_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

var notice = regexp.MustCompile(`\n\[(\d+) bytes of output were dropped here: nothing took them in time\]\n`)

// reported returns the number of bytes that the notices of an output report, and the output without them.
func reported(t *testing.T, text string) (n int, rest string) {
	t.Helper()
	for _, found := range notice.FindAllStringSubmatch(text, -1) {
		one := testenv.Call(strconv.Atoi(found[1])).Must(t)
		n += one
	}
	return n, notice.ReplaceAllString(text, "")
}

// flush flushes for up to a second, and returns how long that took.
func flush(t *testing.T, b *output.Buffer) time.Duration {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b.Flush(ctx)
	return time.Since(start)
}

// Nobody waits for a stream that takes nothing, except a Waiting writer, once and for a second. What does not fit is
// dropped, and the notice stands at its place.
func TestBuffer_NobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		b := output.NewBuffer(write)
		start, sent := time.Now(), 0
		for time.Since(start) == 0 && sent < 20_000_000 {
			n, err := fmt.Fprintf(b, "line %0200d\n", sent)
			if sent += n; err != nil {
				t.Fatal(err)
			}
		}
		if waited := flush(t, b); waited != time.Second || time.Since(start) != waited {
			t.Errorf("a write waited, or Flush did for %s", waited)
		}
		for range 3 {
			n, _ := fmt.Fprintln(b.Waiting(), "after a second")
			sent += n
		}
		if waited := time.Since(start) - time.Second; waited != 0 {
			t.Errorf("a Waiting writer waited for %s although the stream has taken nothing for a second", waited)
		}
		var text bytes.Buffer
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(&text, read) })
		testenv.Equal(t, "the time of Flush", flush(t, b), 0)
		fmt.Fprintln(b, "later")
		flush(t, b)
		write.Close()
		reading.Wait()
		dropped, rest := reported(t, text.String())
		if kept := len(rest) - len("later\n"); kept < 1<<20 || kept > 1<<20+300 || kept+dropped != sent || b.Dropped() != dropped {
			t.Errorf("of %d bytes, %d were kept and %d reported; Dropped is %d", sent, kept, dropped, b.Dropped())
		}
		if !strings.HasSuffix(text.String(), " in time]\nlater\n") {
			t.Error("the notice is not at the place of the gap")
		}
	})
}

// A Waiting writer waits for a second when the stream begins to take nothing, and loses nothing while somebody reads
// slowly.
func TestBuffer_Waiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		b := output.NewBuffer(write)
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		start := time.Now()
		for range 64 {
			_, _ = b.Waiting().Write(chunk)
		}
		if waited := time.Since(start); waited != time.Second || b.Dropped() != 1<<20 {
			t.Errorf("it waited for %s and dropped %d bytes", waited, b.Dropped())
		}
		taken := 0
		var reading sync.WaitGroup
		reading.Go(func() {
			for buf := make([]byte, 4096); ; time.Sleep(900 * time.Millisecond) {
				n, err := read.Read(buf)
				if taken += n; err != nil {
					return
				}
			}
		})
		time.Sleep(time.Minute)
		for range 10 {
			_, _ = b.Waiting().Write(chunk)
		}
		testenv.Equal(t, "bytes dropped while somebody read", b.Dropped(), 1<<20)
		b.Flush(t.Context())
		write.Close()
		reading.Wait()
		if want := 1<<20 + 10*len(chunk); taken < want {
			t.Errorf("%d bytes arrived, want %d", taken, want)
		}
	})
}

// A full disk refuses writes until there is room again. Then the notice has what was lost, also without another write.
func TestBuffer_FullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{full: true}
		b := output.NewBuffer(d)
		for range 3 {
			fmt.Fprintln(b, "lost")
			testenv.Equal(t, "the time of Flush", flush(t, b), 0)
		}
		d.full = false
		fmt.Fprintln(b, "kept")
		flush(t, b)
		if n, rest := reported(t, d.String()); n != 15 || b.Dropped() != 15 || rest != "kept\n" {
			t.Errorf("%q; Dropped is %d", d.String(), b.Dropped())
		}
	})
}

type disk struct {
	bytes.Buffer
	full bool
}

func (d *disk) Write(p []byte) (int, error) {
	if d.full {
		return 0, errors.New("no space left on device")
	}
	return d.Buffer.Write(p)
}
