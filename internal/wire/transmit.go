package wire

import (
	"context"
	"errors"
	"net"
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
	return []byte(m.text), nil
}

func (m *mark) String() string { return m.text }

// transmit sends commands in one round trip.
func transmit(ctx context.Context, rdb *redis.Client, commands [][]any) []Answer {
	n := 0
	for _, args := range commands {
		n += len(args)
	}
	all := make([]any, 0, n) // the arguments, with the marks
	replies := make([]Answer, len(commands))
	marks := make([]mark, len(commands))
	cmds := make([]*redis.Cmd, len(commands))
	for i, args := range commands {
		marks[i].text = Text(args[0])
		first := len(all)
		all = append(append(all, &marks[i]), args[1:]...)
		cmds[i] = redis.NewCmd(ctx, all[first:len(all):len(all)]...)
	}
	var err error
	if len(cmds) == 1 {
		err = rdb.Process(ctx, cmds[0])
	} else {
		pipe := rdb.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err = pipe.Exec(ctx)
	}
	for i, cmd := range cmds {
		replies[i] = readReply(ctx, cmd, marks[i].written, err)
	}
	return replies
}

// readReply returns the answer of one command. whole is the error of its batch.
func readReply(ctx context.Context, cmd *redis.Cmd, written bool, whole error) Answer {
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
		if at, ok := ctx.Deadline(); ok && errors.As(err, &timeout) && timeout.Timeout() && !time.Now().Before(at) {
			<-ctx.Done() // the connection has the deadline of ctx, and reports it a moment earlier
		}
		var own *noAnswerError
		if cause := context.Cause(ctx); errors.As(cause, &own) {
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
