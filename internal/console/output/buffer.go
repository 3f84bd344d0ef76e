package output

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// capacity is the size in bytes from which a Buffer drops output.
	capacity = 1 << 20

	// stallTimeout is the time without progress of the stream after which a writer of Waiting drops output, too.
	stallTimeout = time.Second

	// pieceSize limits the bytes of one write to the stream. Pipes do not split a write of this size, and after each
	// write the Buffer notices the progress of a slow reader.
	pieceSize = 4096
)

// A Buffer writes to a stream in a goroutine of its own, so that its users do not wait for a stream that nobody
// reads. It drops output that does not fit or that the stream refuses. When the stream accepts a write again, the
// Buffer writes a notice with the number of dropped bytes.
type Buffer struct {
	stream io.Writer

	mu       sync.Mutex
	pieces   []piece
	size     int           // bytes of the pieces
	missed   int           // dropped bytes that no notice reports yet
	dropped  int           // all dropped bytes
	writing  bool          // the goroutine runs
	failed   bool          // the last write failed
	progress time.Time     // end of the last write, or start of the goroutine
	written  chan struct{} // closed and replaced after each write
}

// A piece is part of what a user has written, or a notice.
type piece struct {
	text    []byte
	reports int // dropped bytes, in a notice
}

// NewBuffer returns an empty Buffer for a stream.
func NewBuffer(stream io.Writer) *Buffer {
	return &Buffer{stream: stream, written: make(chan struct{})}
}

// Write queues or drops p. It never waits, and returns no error.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size >= capacity {
		b.drop(len(p))
		return len(p), nil
	}
	b.report()
	for text := range slices.Chunk(slices.Clone(p), pieceSize) {
		b.add(piece{text: text})
	}
	return len(p), nil
}

// Waiting returns a writer for output that may be faster than its reader. The writer waits while the Buffer is
// full and the stream makes progress, so that a slow reader loses nothing.
func (b *Buffer) Waiting() io.Writer { return waiting{b} }

type waiting struct{ *Buffer }

func (w waiting) Write(p []byte) (int, error) {
	for w.awaitWrite(context.Background(), func() time.Duration {
		if w.size < capacity {
			return 0
		}
		return stallTimeout - time.Since(w.progress)
	}) {
	}
	return w.Buffer.Write(p)
}

// Flush waits until the Buffer is empty, or ctx ends.
func (b *Buffer) Flush(ctx context.Context) {
	const unlimited = time.Hour // the next write ends the wait
	for b.awaitWrite(ctx, func() time.Duration {
		if b.writing {
			return unlimited
		}
		return 0
	}) {
	}
}

// awaitWrite waits for the next write to the stream, at most for the result of timeout, which it calls with b.mu locked.
// It returns false at once if the result is not positive, or if ctx has ended.
func (b *Buffer) awaitWrite(ctx context.Context, timeout func() time.Duration) bool {
	b.mu.Lock()
	wait, written := timeout(), b.written
	b.mu.Unlock()
	if wait <= 0 || ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-written:
	case <-ctx.Done():
	}
	return true
}

// Dropped returns the number of bytes that were dropped.
func (b *Buffer) Dropped() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

func (b *Buffer) drop(n int) {
	b.missed += n
	b.dropped += n
}

// report adds a notice of the missed bytes.
func (b *Buffer) report() {
	if n := b.missed; n > 0 {
		b.missed = 0
		b.add(piece{fmt.Appendf(nil, "\n[%d bytes of output were dropped here: nothing took them in time]\n", n), n})
	}
}

func (b *Buffer) add(p piece) {
	b.pieces = append(b.pieces, p)
	b.size += len(p.text)
	if !b.writing {
		b.writing, b.progress = true, time.Now()
		go b.write() // Flush waits for its end
	}
}

func (b *Buffer) write() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pieces) > 0 {
		p := b.pieces[0]
		b.mu.Unlock()
		n, err := b.stream.Write(p.text)
		b.mu.Lock()
		b.pieces[0] = piece{}
		b.pieces = b.pieces[1:]
		b.size -= len(p.text)
		b.failed = err != nil
		switch {
		case b.failed && p.reports > 0:
			b.missed += p.reports
		case b.failed:
			b.drop(len(p.text) - n)
		case len(b.pieces) == 0:
			b.report()
		}
		b.progress = time.Now()
		close(b.written)
		b.written = make(chan struct{})
	}
	b.pieces, b.writing = nil, false // b.mu is locked since the last write, so Flush sees both together
}
