package lockcoretest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errMalformed means that the bytes are not RESP, for example TLS. The connection is
// closed, since its requests cannot be separated.
var errMalformed = errors.New("lockcoretest: not RESP")

// maxLength is the limit of Redis for one string.
const maxLength = 512 << 20

// wire reads RESP values for a relay, and keeps the bytes of the last value, which the relay forwards.
type wire struct {
	r   *bufio.Reader
	raw bytes.Buffer
}

func newWire(r io.Reader) *wire { return &wire{r: bufio.NewReader(r)} }

// value is a request, a reply or a message.
type value struct {
	kind  byte     // first byte, which is the RESP type
	text  string   // text of a string or number
	items []string // texts of the elements of a list
}

// next reads a value and returns also its bytes, which are valid until the next call.
func (w *wire) next() (v value, raw []byte, err error) {
	w.raw.Reset()
	v, err = w.value()
	return v, w.raw.Bytes(), err
}

// value reads one value.
func (w *wire) value() (v value, err error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return v, err
	}
	w.raw.WriteString(line)
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return v, fmt.Errorf("%w: %.20q", errMalformed, line)
	}
	v.kind, v.text = line[0], line[1:]
	if strings.IndexByte("+-:,(#_", v.kind) >= 0 {
		return v, nil
	}
	n, err := strconv.Atoi(v.text)
	if strings.IndexByte("$=!*>~%", v.kind) < 0 || err != nil || n < -1 || n > maxLength {
		return v, fmt.Errorf("%w: %.20q", errMalformed, line)
	}
	v.text = ""
	switch v.kind {
	case '$', '=', '!':
		if n < 0 {
			return v, nil
		}
		at := w.raw.Len()
		// The buffer grows as data arrives: a header alone must not allocate half a gigabyte.
		if _, err := io.CopyN(&w.raw, w.r, int64(n)+2); err != nil {
			return v, err
		}
		v.text = string(w.raw.Bytes()[at : at+n])
		return v, nil
	case '%':
		n *= 2
	}
	for range n {
		item, err := w.value()
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item.text)
	}
	return v, nil
}
