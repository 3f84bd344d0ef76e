package lockcoretest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReplies(t *testing.T) {
	tests := []struct {
		raw   string
		items []string
	}{
		{"+OK\r\n", nil},
		{"-ERR no\r\n", nil},
		{":7\r\n", nil},
		{"$5\r\na\r\nbc\r\n", nil},
		{"$-1\r\n", nil},
		{"*-1\r\n", nil},
		{"*0\r\n", nil},
		{"*3\r\n$7\r\nmessage\r\n+ch\r\n:1\r\n", []string{"message", "ch", "1"}},
		{"*2\r\n*2\r\n:1\r\n:2\r\n$1\r\nx\r\n", []string{"", "x"}},
		{">2\r\n$1\r\na\r\n_\r\n", []string{"a", ""}},
		{"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n", []string{"a", "1", "b", ""}},
		{"~1\r\n,1.5\r\n", []string{"1.5"}},
		{"(12345678901234567890\r\n", nil},
		{"=5\r\ntxt:x\r\n", nil},
		{"!3\r\nERR\r\n", nil},
	}
	var all strings.Builder
	for _, tt := range tests {
		all.WriteString(tt.raw)
	}
	for name, in := range map[string]io.Reader{
		"at once":      strings.NewReader(all.String()),
		"byte by byte": iotest.OneByteReader(strings.NewReader(all.String())),
	} {
		w := newWire(in)
		for _, tt := range tests {
			p, raw, err := w.next()
			if err != nil || string(raw) != tt.raw || !slices.Equal(p.items, tt.items) {
				t.Errorf("%s: %q was read as %q with %q, %v", name, tt.raw, raw, p.items, err)
			}
		}
		if _, _, err := w.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, raw := range []string{"\r\n", "?\r\n", "$x\r\n", "*-2\r\n", "$536870913\r\n", "*x\r\n", "|1\r\n+ttl\r\n:3\r\n", "\x16\x03\x01\n"} {
		if _, _, err := newWire(strings.NewReader(raw)).next(); !errors.Is(err, errMalformed) {
			t.Errorf("reply %.20q: %v", raw, err)
		}
	}
}

// The forwarded bytes equal the received ones, and no input causes a panic.
func FuzzWire(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n"))
	f.Add([]byte("%1\r\n+a\r\n:1\r\n*2\r\n+OK\r\n$-1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWire(bytes.NewReader(in))
		var out []byte
		for {
			_, raw, err := w.next()
			if err != nil {
				break
			}
			out = append(out, raw...)
		}
		if !bytes.HasPrefix(in, out) {
			t.Errorf("%q was forwarded as %q", in, out)
		}
	})
}
