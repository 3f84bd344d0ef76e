package conn

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// This file writes commands and reads replies in version 2 of RESP, which every server and proxy supports:
// https://redis.io/docs/latest/develop/reference/protocol-spec/.

const (
	// maxReply limits the bytes of a reply, and maxDepth its nested lists. Histories and keys are read in pages. Only a
	// list of more than 100,000 waiters would be larger.
	maxReply = 16 << 20
	maxDepth = 32

	readBuffer = 4 << 10
	keptBuffer = 64 << 10 // size limit of a buffer that is kept
)

type reader struct {
	*bufio.Reader
	left int // bytes that the current reply may still have
}

func newReader(r io.Reader) *reader { return &reader{bufio.NewReaderSize(r, readBuffer), 0} }

func (r *reader) count(n int) error {
	if r.left -= n; r.left < 0 {
		return &protocolError{fmt.Sprintf("a reply of more than %d bytes", maxReply)}
	}
	return nil
}

func appendCommand(b []byte, args []any) []byte {
	return appendArgs(appendHeader(b, '*', len(args)), args)
}

func appendArgs(b []byte, args []any) []byte {
	for _, arg := range args {
		b = appendArg(b, arg)
	}
	return b
}

func appendHeader(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

func appendArg(b []byte, arg any) []byte {
	switch v := arg.(type) {
	case string:
		return appendText(b, v)
	case *string:
		return appendText(b, *v)
	case []byte:
		return appendText(b, v)
	case int:
		return appendInt(b, int64(v))
	case int32:
		return appendInt(b, int64(v))
	case int64:
		return appendInt(b, v)
	}
	return appendText(b, fmt.Sprint(arg))
}

func appendText[T string | []byte](b []byte, text T) []byte {
	b = appendHeader(b, '$', len(text))
	b = append(b, text...)
	return append(b, '\r', '\n')
}

func appendInt(b []byte, n int64) []byte {
	var digits [20]byte
	return appendText(b, strconv.AppendInt(digits[:0], n, 10))
}

// A protocolError reports bytes that are not RESP, or a reply that is too large.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "lockcore: the server broke the protocol: " + e.text }

var errWrongReply = &protocolError{"a reply to another request"}

// readAnswer reads the reply to a command. An error makes the connection unusable. A refusal of the server is an
// Answer.
//
// A value is a string, an int64, nil, or a list of values and refusals.
func readAnswer(r *reader, named bool, id uint64) (a Answer, err error) {
	r.left = maxReply
	if named {
		a.Value, err = readNamed(r, id)
	} else {
		a.Value, err = readValue(r, 0)
	}
	if refused, ok := err.(*Refusal); ok { //nolint:errorlint // readValue does not wrap it
		a.Err, err = PlainRefusal(refused), nil
	}
	return a, err
}

// readNamed reads the reply to a named command: a string of the id, a type and the answer, or a list of the id and the
// answer. The error of a script that failed contains no id.
func readNamed(r *reader, id uint64) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	var text [32]byte
	switch line[0] {
	case '-':
		return nil, &Refusal{string(line[1:])}
	case '$':
		want := strconv.AppendUint(text[:0], id, 10)
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil || n <= len(want) {
			return nil, errWrongReply
		}
		switch got, err := r.Peek(len(want) + 1); {
		case err != nil:
			return nil, err
		case !bytes.HasPrefix(got, want):
			return nil, errWrongReply
		}
		return readNamedText(r, n, len(want))
	case '*':
		want := appendInt(text[:0], int64(id))
		nothing, both := string(line[1:]) == "1", string(line[1:]) == "2" // the answer nil is missing: Redis ends a list at it
		if !nothing && !both {
			return nil, errWrongReply
		}
		switch got, err := r.Peek(len(want)); {
		case err != nil:
			return nil, err
		case !bytes.Equal(got, want):
			return nil, errWrongReply
		}
		if _, err := r.Discard(len(want)); err != nil || nothing {
			return nil, err
		}
		return readValue(r, 0)
	}
	return nil, errWrongReply
}

// readNamedText reads a string of n bytes: an id of idLen bytes, which was checked, a type and the answer.
func readNamedText(r *reader, n, idLen int) (any, error) {
	head, err := r.Peek(idLen + 1)
	if err != nil {
		return nil, err
	}
	number := head[idLen] == ':'
	if !number && head[idLen] != '$' {
		return nil, errWrongReply
	}
	if _, err := r.Discard(idLen + 1); err != nil {
		return nil, err
	}
	text, err := readText(r, n-idLen-1)
	if err != nil || !number {
		return text, err
	}
	whole, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, errWrongReply
	}
	return whole, nil
}

func readValue(r *reader, depth int) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return string(text), nil
	case '-':
		return nil, &Refusal{string(text)}
	case ':':
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n, nil
		}
	case '$':
		return readBulk(r, text)
	case '*':
		return readList(r, text, depth)
	}
	return nil, &protocolError{fmt.Sprintf("a line of %d bytes that begins with %q", len(line), kind)} // not its text, which may be secret
}

// readLine reads a line without its end. The line is valid until the next read.
func readLine(r *reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	var long []byte // the parts of a line that does not fit into the buffer
	for errors.Is(err, bufio.ErrBufferFull) {
		if long = append(long, line...); len(long) > keptBuffer {
			return nil, &protocolError{fmt.Sprintf("a line of more than %d bytes", keptBuffer)}
		}
		line, err = r.ReadSlice('\n')
	}
	if long != nil {
		line = slices.Concat(long, line)
	}
	switch {
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, &protocolError{fmt.Sprintf("a line of %d bytes without its end", len(line))}
	}
	return line[:len(line)-2], r.count(len(line))
}

func readBulk(r *reader, length []byte) (any, error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err == nil && n == -1:
		return nil, nil
	case err != nil || n < 0:
		return nil, &protocolError{fmt.Sprintf("a text of %.20q bytes", length)}
	}
	return readText(r, n)
}

// readText reads n bytes and the line end after them. A text that does not fit into the buffer is allocated while it
// arrives, so a wrong length costs no memory.
func readText(r *reader, n int) (string, error) {
	if err := r.count(n); err != nil {
		return "", err
	}
	if n+2 <= r.Size() {
		whole, err := r.Peek(n + 2)
		if err != nil {
			return "", err
		}
		text := string(whole[:n])
		end := whole[n:]
		ended := end[0] == '\r' && end[1] == '\n'
		if _, err := r.Discard(n + 2); err != nil {
			return "", err
		}
		if !ended {
			return "", &protocolError{fmt.Sprintf("a text longer than its %d bytes", n)}
		}
		return text, nil
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)+2); err != nil {
		return "", err
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\r\n")) {
		return "", &protocolError{fmt.Sprintf("a text longer than its %d bytes", n)}
	}
	b.Truncate(n)
	return b.String(), nil
}

func readList(r *reader, length []byte, depth int) (any, error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err == nil && n == -1:
		return nil, nil
	case err != nil || n < 0 || n > maxReply || depth == maxDepth:
		return nil, &protocolError{fmt.Sprintf("a list of %.20q elements, in %d others", length, depth)}
	}
	list := make([]any, 0, min(n, 1024))
	for len(list) < n {
		element, err := readValue(r, depth+1)
		if refused, ok := err.(*Refusal); ok { //nolint:errorlint // readValue does not wrap it
			element, err = refused, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}
