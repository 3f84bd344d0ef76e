package wire

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A mark is the name of a command, and records whether the command was written. go-redis
// requests its bytes when it writes the command to a connection that is set up. A command
// that fails before that was surely not applied.
type mark struct {
	text    string
	written bool
}

func (m *mark) MarshalBinary() ([]byte, error) {
	m.written = true
	if m.text == evalsha {
		return evalshaBytes, nil
	}
	return []byte(m.text), nil
}

const evalsha = "evalsha" // most commands

var evalshaBytes = []byte(evalsha)

func (m *mark) String() string { return m.text }

// A batch is the commands of one exchange, as go-redis takes them. A connection uses the memory
// again for the next exchange.
type batch struct {
	args  []any // of all commands, with the marks
	marks []mark
	cmds  []redis.Cmder
}

// add adds a command. It must not exceed the capacity of marks.
func (b *batch) add(d *deadline, r Request) {
	b.marks = append(b.marks, mark{text: Text(r.args[0])})
	first := len(b.args)
	b.args = append(append(b.args, &b.marks[len(b.marks)-1]), r.args[1:]...)
	b.cmds = append(b.cmds, redis.NewCmd(d, b.args[first:len(b.args):len(b.args)]...))
}

// clear forgets the commands, and the memory if it is more than most batches need.
func (b *batch) clear() {
	if cap(b.marks) > 2*maxBatch {
		*b = batch{}
		return
	}
	clear(b.args)
	clear(b.cmds)
	b.args, b.marks, b.cmds = b.args[:0], b.marks[:0], b.cmds[:0]
}

// transmit sends commands in one round trip.
func (c *connection) transmit(d *deadline, rdb *redis.Client, commands []Request) []Answer {
	b := &c.batch
	defer b.clear()
	b.marks = slices.Grow(b.marks, len(commands))
	for _, r := range commands {
		b.add(d, r)
	}
	var err error
	if len(b.cmds) == 1 {
		err = rdb.Process(d, b.cmds[0])
	} else {
		pipe := rdb.Pipeline()
		_ = pipe.BatchProcess(d, b.cmds...)
		_, err = pipe.Exec(d)
	}
	replies := make([]Answer, len(commands))
	for i, cmd := range b.cmds {
		replies[i] = readReply(d, cmd.(*redis.Cmd), b.marks[i].written, err)
	}
	return replies
}

// readReply returns the answer of one command. whole is the error of its batch.
func readReply(d *deadline, cmd *redis.Cmd, written bool, whole error) Answer {
	value, err := cmd.Result()
	switch {
	case written && errors.Is(err, redis.Nil), written && err == nil && value != nil:
		return Answer{Value: value}
	case err == nil:
		// If the setup of the connection is refused, go-redis sets no errors on the commands
		// of a batch.
		if err = whole; err == nil {
			err = errors.New("lockcore: the server answered nothing")
		}
	}
	err = plainRefusal(err)
	if !IsRefused(err) {
		var timeout net.Error
		if at, ok := d.Deadline(); ok && errors.As(err, &timeout) && timeout.Timeout() && !time.Now().Before(at) {
			<-d.Done() // the connection has the same deadline, and reports it a moment earlier
		}
		var own *noAnswerError
		if cause := d.why(); errors.As(cause, &own) {
			err = cause // not context.DeadlineExceeded: the caller's context has not ended
		}
	}
	switch {
	case !written:
		return Answer{Err: &unsentError{err}}
	case IsRefused(err):
		return Answer{Err: err}
	default:
		return Answer{Err: errors.Join(ErrUnknown, err)}
	}
}
