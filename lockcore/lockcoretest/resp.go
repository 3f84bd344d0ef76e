package lockcoretest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errMalformed means that the bytes are not RESP, for example TLS. The connection is
// closed, since its requests cannot be separated.
var errMalformed = errors.New("lockcoretest: not RESP")

// maxBulk is the limit of Redis for one string.
const maxBulk = 512 << 20

// maxDepth limits the nesting of replies, so that no input overflows the stack.
const maxDepth = 64

// wire reads RESP and keeps the bytes of the value it is reading.
type wire struct {
	r   *bufio.Reader
	raw []byte
}

func newWire(r io.Reader) *wire {
	return &wire{r: bufio.NewReader(r)}
}

// line reads one line and returns it without CR LF.
func (w *wire) line() (string, error) {
	b, err := w.r.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	w.raw = append(w.raw, b...)
	return strings.TrimSuffix(string(b[:len(b)-1]), "\r"), nil
}

func (w *wire) bulk(size int) (string, error) {
	at := len(w.raw)
	// The buffer grows as data arrives: a header alone must not allocate half a gigabyte.
	for left := size + 2; left > 0; {
		step := min(left, 64<<10)
		from := len(w.raw)
		w.raw = append(w.raw, make([]byte, step)...)
		if _, err := io.ReadFull(w.r, w.raw[from:]); err != nil {
			return "", err
		}
		left -= step
	}
	return string(w.raw[at : at+size]), nil
}

func length(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 || n > maxBulk {
		return 0, fmt.Errorf("%w: length %q", errMalformed, s)
	}
	return n, nil
}

// request reads one request, as an array of bulk strings or inline. The boundaries of
// writes do not matter. cmd[0] is in upper case. cmd is empty for an empty request, which
// has no reply.
func (w *wire) request() (raw []byte, cmd []string, err error) {
	w.raw = nil
	head, err := w.line()
	if err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(head, "*") {
		n, err := length(head[1:])
		if err != nil {
			return nil, nil, err
		}
		for range n {
			arg, err := w.line()
			if err != nil {
				return nil, nil, err
			}
			if !strings.HasPrefix(arg, "$") {
				return nil, nil, fmt.Errorf("%w: argument %.20q", errMalformed, arg)
			}
			size, err := length(arg[1:])
			if err != nil || size < 0 {
				return nil, nil, fmt.Errorf("%w: argument %.20q", errMalformed, arg)
			}
			s, err := w.bulk(size)
			if err != nil {
				return nil, nil, err
			}
			cmd = append(cmd, s)
		}
	} else {
		for _, r := range head {
			if r < ' ' && r != '\t' {
				return nil, nil, fmt.Errorf("%w: request %.20q", errMalformed, head)
			}
		}
		cmd = strings.Fields(head)
	}
	if len(cmd) > 0 {
		cmd[0] = strings.ToUpper(cmd[0])
	}
	return w.raw, cmd, nil
}

// reply is one value that a server sent.
type reply struct {
	raw   []byte
	kind  byte     // the RESP type
	items []string // elements of an array or push that are strings or numbers
}

func (w *wire) reply() (reply, error) {
	w.raw = nil
	var p reply
	kind, _, err := w.value(&p.items, 0)
	p.raw, p.kind = w.raw, kind
	return p, err
}

// value reads one value. It appends its direct elements to items unless items is nil.
func (w *wire) value(items *[]string, depth int) (kind byte, text string, err error) {
	head, err := w.line()
	if err != nil {
		return 0, "", err
	}
	if head == "" || depth > maxDepth {
		return 0, "", fmt.Errorf("%w: reply %.20q", errMalformed, head)
	}
	kind, text = head[0], head[1:]
	inside := 0
	switch kind {
	case '+', '-', ':', ',', '(', '#', '_':
		return kind, text, nil
	case '$', '=', '!':
		n, err := length(text)
		if err != nil || n < 0 {
			return kind, "", err
		}
		text, err = w.bulk(n)
		return kind, text, err
	case '*', '>', '~':
		inside, err = length(text)
	case '%', '|':
		inside, err = length(text)
		inside *= 2
	default:
		err = fmt.Errorf("%w: reply %.20q", errMalformed, head)
	}
	if err != nil {
		return 0, "", err
	}
	for range inside {
		_, s, err := w.value(nil, depth+1)
		if err != nil {
			return 0, "", err
		}
		if items != nil {
			*items = append(*items, s)
		}
	}
	if kind == '|' { // attributes precede the value that they describe
		if items != nil {
			*items = nil
		}
		return w.value(items, depth+1)
	}
	return kind, "", nil
}
