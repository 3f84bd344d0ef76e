package wire

import (
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
	if m.text == evalsha {
		return evalshaBytes, nil
	}
	return []byte(m.text), nil
}

const evalsha = "evalsha" // most commands

var evalshaBytes = []byte(evalsha)

func (m *mark) String() string { return m.text }

// transmit sends commands in one round trip.
func transmit(d *deadline, rdb *redis.Client, commands []Request) []Answer {
	n := 0
	for _, r := range commands {
		n += len(r.args)
	}
	all := make([]any, 0, n) // the arguments, with the marks
	replies := make([]Answer, len(commands))
	sent := make([]struct {
		mark mark
		cmd  *redis.Cmd
	}, len(commands))
	for i, r := range commands {
		sent[i].mark.text = Text(r.args[0])
		first := len(all)
		all = append(append(all, &sent[i].mark), r.args[1:]...)
		sent[i].cmd = redis.NewCmd(d, all[first:len(all):len(all)]...)
	}
	var err error
	if len(sent) == 1 {
		err = rdb.Process(d, sent[0].cmd)
	} else {
		pipe := rdb.Pipeline()
		for i := range sent {
			_ = pipe.Process(d, sent[i].cmd)
		}
		_, err = pipe.Exec(d)
	}
	for i := range sent {
		replies[i] = readReply(d, sent[i].cmd, sent[i].mark.written, err)
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
