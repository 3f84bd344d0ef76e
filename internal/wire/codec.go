package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
)

// This file writes commands and reads replies in RESP, the protocol of Redis, in versions 2 and 3:
// https://redis.io/docs/latest/develop/reference/protocol-spec/. go-redis dials and sets up each
// connection. On the hot path, its pool, its checks and its commands cost more than the server does.

// The limits of a reply. No request of this library has a larger one.
const (
	maxBulk    = 512 << 20 // of Redis
	maxLength  = 1 << 24   // elements of one array
	maxDepth   = 32
	keptBuffer = 64 << 10 // larger buffers are not kept
)

// appendCommand appends a command. Its arguments are texts, pointers to texts, and numbers.
func appendCommand(b []byte, args []any) []byte {
	return appendArgs(appendHeader(b, '*', len(args)), args)
}

// appendNamed appends a call of a script, whose last argument is the id of the request: see Naming.
func appendNamed(b []byte, args []any, id uint64) []byte {
	b = appendArgs(appendHeader(b, '*', len(args)+1), args)
	return appendInt(b, int64(id))
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

// A protocolError says that the server sent something that is not RESP, or more than a reply can have.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "lockcore: the server broke the protocol: " + e.text }

// readReply reads one reply and skips pushed messages and attributes before it. A refusal of the server
// is a *refusal, after which the connection can be used. After any other error, it cannot.
//
// Texts are of type string, and numbers of type int64. A null is nil. The others are as go-redis returns
// them. An error in an array is an element.
func readReply(r *bufio.Reader) (any, error) {
	for {
		value, skip, err := readValue(r, 0)
		if !skip || err != nil {
			return value, err
		}
	}
}

// errOtherAnswer says that a reply does not name the request.
var errOtherAnswer = &protocolError{"a reply that is not that to this request"}

// readNamed reads the reply to a call of a script: see Naming. A call that failed has no other reply than its
// error, which names no request. The other results are as of readReply.
func readNamed(r *bufio.Reader, id uint64) (any, error) {
	line, err := readLine(r)
	for err == nil && (line[0] == '>' || line[0] == '|') {
		if _, _, err = readAggregate(r, line[0], line[1:], 0); err == nil {
			line, err = readLine(r)
		}
	}
	if err != nil {
		return nil, err
	}
	var text [32]byte
	switch line[0] {
	case '-':
		return nil, &refusal{string(line[1:])}
	case '$':
		want := strconv.AppendUint(text[:0], id, 10)
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil || n <= len(want) || n > maxBulk {
			return nil, errOtherAnswer
		}
		switch got, err := r.Peek(len(want) + 1); {
		case err != nil:
			return nil, err
		case !bytes.HasPrefix(got, want):
			return nil, errOtherAnswer
		}
		return readNamedText(r, n, len(want))
	case '*':
		want := appendInt(text[:0], int64(id))
		nothing, both := string(line[1:]) == "1", string(line[1:]) == "2" // Redis ends a list at the first nil
		if !nothing && !both {
			return nil, errOtherAnswer
		}
		switch got, err := r.Peek(len(want)); {
		case err != nil:
			return nil, err
		case !bytes.Equal(got, want):
			return nil, errOtherAnswer
		}
		if _, err := r.Discard(len(want)); err != nil || nothing {
			return nil, err
		}
		return readReply(r)
	}
	return nil, errOtherAnswer
}

// readNamedText reads a text of n bytes, the first of which are the id: a kind and the answer follow.
func readNamedText(r *bufio.Reader, n, id int) (any, error) {
	kind, err := r.Peek(id + 1)
	if err != nil {
		return nil, err
	}
	number := kind[id] == ':'
	if !number && kind[id] != '$' {
		return nil, errOtherAnswer
	}
	if _, err := r.Discard(id + 1); err != nil {
		return nil, err
	}
	text, err := readText(r, n-id-1)
	if err != nil || !number {
		return text, err
	}
	whole, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, errOtherAnswer
	}
	return whole, nil
}

// readValue reads a value. skip says that it does not count as a reply or an element.
func readValue(r *bufio.Reader, depth int) (value any, skip bool, err error) {
	line, err := readLine(r)
	if err != nil {
		return nil, false, err
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return string(text), false, nil
	case '-':
		return nil, false, &refusal{string(text)}
	case ':':
		n, err := strconv.ParseInt(string(text), 10, 64)
		return n, false, orProtocol(err, line)
	case '$', '=', '!':
		return readBulk(r, kind, text)
	case '_':
		return nil, false, nil
	case '#':
		if len(text) != 1 || text[0] != 't' && text[0] != 'f' {
			return nil, false, orProtocol(strconv.ErrSyntax, line)
		}
		return text[0] == 't', false, nil
	case ',':
		f, err := strconv.ParseFloat(string(text), 64)
		return f, false, orProtocol(err, line)
	case '(':
		n, ok := new(big.Int).SetString(string(text), 10)
		if !ok {
			err = strconv.ErrSyntax
		}
		return n, false, orProtocol(err, line)
	case '*', '~', '>', '%', '|':
		return readAggregate(r, kind, text, depth)
	}
	return nil, false, orProtocol(strconv.ErrSyntax, line)
}

// orProtocol returns the error for a line that could not be parsed, or nil. It does not contain the line,
// which may be secret.
func orProtocol(err error, line []byte) error {
	if err == nil {
		return nil
	}
	return &protocolError{fmt.Sprintf("a line of %d bytes that begins with %q: %v", len(line), line[0], errors.Unwrap(err))}
}

// readLine reads a line without its end. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
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
	return line[:len(line)-2], nil
}

// readBulk reads a text of a length that is given before it.
func readBulk(r *bufio.Reader, kind byte, length []byte) (any, bool, error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err == nil && n == -1 && kind == '$':
		return nil, false, nil
	case err != nil || n < 0 || n > maxBulk || kind == '=' && n < 4:
		return nil, false, &protocolError{fmt.Sprintf("a text of %.20q bytes", length)}
	}
	text, err := readText(r, n)
	switch {
	case err != nil:
		return nil, false, err
	case kind == '!':
		return nil, false, &refusal{text}
	case kind == '=':
		return text[4:], false, nil // after the format, such as txt:
	}
	return text, false, nil
}

// readText reads n bytes and the end of the line after them. It does not allocate more than has arrived,
// beyond what fits into the buffer.
func readText(r *bufio.Reader, n int) (string, error) {
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

// readAggregate reads the elements of an array, a set, a map, a pushed message or an attribute.
func readAggregate(r *bufio.Reader, kind byte, length []byte, depth int) (value any, skip bool, err error) {
	n, err := strconv.Atoi(string(length))
	switch {
	case err == nil && n == -1 && kind == '*':
		return nil, false, nil
	case err != nil || n < 0 || n > maxLength || depth == maxDepth:
		return nil, false, &protocolError{fmt.Sprintf("a list of %.20q elements, in %d others", length, depth)}
	}
	skip = kind == '>' || kind == '|'
	pairs := kind == '%' || kind == '|'
	if pairs {
		n *= 2
	}
	list := make([]any, 0, min(n, 1024))
	for len(list) < n {
		element, attribute, err := readValue(r, depth+1)
		if refused, ok := errors.AsType[*refusal](err); ok {
			element, err = refused, nil
		}
		if err != nil {
			return nil, false, err
		}
		if !attribute {
			list = append(list, element)
		}
	}
	if !pairs || skip {
		return list, skip, nil
	}
	m := make(map[any]any, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		switch list[i].(type) {
		case []any, map[any]any: // cannot be a key
			return nil, false, &protocolError{"a map with a list as a key"}
		}
		m[list[i]] = list[i+1]
	}
	return m, false, nil
}
