package conn

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redis/go-redis/v9"
)

func TestCommandsAreWritten(t *testing.T) {
	for want, args := range map[string][]any{
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n":                                       {"GET", ""},
		"*2\r\n$4\r\na\r\nb\r\n$3\r\n\x00\xffx":                               {"a\r\nb", []byte("\x00\xffx")},
		"*4\r\n$1\r\n0\r\n$2\r\n-7\r\n$1\r\n5\r\n$20\r\n18446744073709551615": {0, int64(-7), int32(5), uint64(math.MaxUint64)},
		"*1\r\n$3\r\n1.5": {1.5},
	} {
		if got := string(appendCommand(nil, args)); got != strings.TrimSuffix(want, "\r\n")+"\r\n" {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
	}
}

// Each form of a reply is read, whole or byte by byte, and the next one after it.
func TestFault10_RepliesAreRead(t *testing.T) {
	long := strings.Repeat("0123456789", 2000) // longer than the buffer
	for sent, want := range map[string]any{
		"+OK\r\n":                              "OK",
		"+\r\n":                                "",
		":-5\r\n":                              int64(-5),
		"$0\r\n\r\n":                           "",
		"$5\r\na\r\nb\x00\r\n":                 "a\r\nb\x00",
		"$-1\r\n":                              nil,
		"*-1\r\n":                              nil,
		"*0\r\n":                               []any{},
		"*3\r\n:1\r\n$1\r\na\r\n*1\r\n$-1\r\n": []any{int64(1), "a", []any{nil}},
		"*2\r\n-ERR no\r\n:1\r\n":              []any{&Refusal{"ERR no"}, int64(1)},
		"-ERR x\r\n":                           &Refusal{"ERR x"},
		"+" + long + "\r\n":                    long,
		"$" + strconv.Itoa(len(long)) + "\r\n" + long + "\r\n": long,
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(sent + ":7\r\n"), "byte by byte": iotest.OneByteReader(strings.NewReader(sent + ":7\r\n")),
		} {
			reader := newReader(r)
			a, err := readAnswer(reader, false, 0)
			if got := cmp.Or[any](a.Err, a.Value); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%.60q %s: %.60v, %v, want %.60v", sent, name, got, err, want)
			}
			if next, err := readAnswer(reader, false, 0); err != nil || next.Value != int64(7) {
				t.Errorf("%.60q %s: then %v, %v", sent, name, next, err)
			}
		}
	}
}

// A reply counts for the request whose id it has, and for no other one.
func TestFault119_NamedReplies(t *testing.T) {
	const id = 12345
	for sent, want := range map[string]any{
		"$6\r\n12345$\r\n":                        "",
		"$9\r\n12345$one\r\n":                     "one",
		"$7\r\n12345:7\r\n":                       int64(7),
		"*2\r\n$5\r\n12345\r\n:-1\r\n":            int64(-1),
		"*1\r\n$5\r\n12345\r\n":                   nil,
		"*2\r\n$5\r\n12345\r\n*1\r\n$2\r\n$x\r\n": []any{"$x"},
		"*2\r\n$5\r\n12345\r\n-ERR inside\r\n":    &Refusal{"ERR inside"},
		"-ERR outside\r\n":                        &Refusal{"ERR outside"},
		"$9\r\n12346$one\r\n":                     errWrongReply,
		"$8\r\n1234$one\r\n":                      errWrongReply,
		"$9\r\n12345?one\r\n":                     errWrongReply,
		"$9\r\n12345:one\r\n":                     errWrongReply,
		"$5\r\n12345\r\n":                         errWrongReply,
		"$-1\r\n":                                 errWrongReply,
		"*2\r\n$5\r\n12344\r\n:1\r\n":             errWrongReply,
		"*3\r\n$5\r\n12345\r\n:1\r\n:1\r\n":       errWrongReply,
		":1\r\n":                                  errWrongReply,
		"+OK\r\n":                                 errWrongReply,
		"%1\r\n$5\r\n12345\r\n:1\r\n":             errWrongReply,
	} {
		for _, r := range []io.Reader{strings.NewReader(sent + strings.Repeat("\r\n", 20)), iotest.OneByteReader(strings.NewReader(sent + strings.Repeat("\r\n", 20)))} {
			a, err := readAnswer(newReader(r), true, id)
			got := a.Value
			if err = cmp.Or(err, a.Err); err != nil {
				got = err
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %v, want %v", sent, got, want)
			}
		}
	}
}

// What is not a reply is an error that contains none of it, and costs little memory. The connection is
// then closed, as nobody knows where the next reply begins.
func TestBrokenRepliesAreErrors(t *testing.T) {
	for _, sent := range []string{
		"secret\r\n", "\r\n", "\n", "+OK\n", ":x\r\n", ":\r\n", "$x\r\n", "$-2\r\n", "$5\r\nsecretsecret\r\n", "$3\r\nabcde", "$99999999999999999999\r\n",
		"$16777217\r\n", "*16777217\r\n", "*2\r\n$9000000\r\n" + strings.Repeat("x", 9000000) + "\r\n$9000000\r\n", "*-2\r\n", "#x\r\n", ",secret\r\n", "(secret\r\n", "_\r\n", "%0\r\n", "$?\r\n", "*?\r\n",
		strings.Repeat("*1\r\n", 100), "+" + strings.Repeat("x", 1<<20) + "\r\n", "$-1x\r\n", "!-1\r\n",
	} {
		if _, err := readAnswer(newReader(strings.NewReader(sent)), false, 0); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.30q: %v", sent, err)
		}
	}
	for _, cut := range []string{"", "+O", "$5\r\nab", "*2\r\n:1\r\n", "$100000\r\nab", "*16777216\r\n:1\r\n"} {
		allocated := testing.AllocsPerRun(1, func() {
			if _, err := readAnswer(newReader(strings.NewReader(cut)), false, 0); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q: %v", cut, err)
			}
		})
		if allocated > 20 {
			t.Errorf("%q: %v allocations", cut, allocated)
		}
	}
}

// Whatever a server sends, reading ends, and what was read can be written and read again.
func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*2\r\n:1\r\n$-1\r\n", "*1\r\n-ERR\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		reader := newReader(bytes.NewReader(sent))
		for range len(sent) + 1 {
			a, err := readAnswer(reader, false, 0)
			if err != nil {
				return
			}
			text, ok := a.Value.(string)
			if !ok {
				continue
			}
			again, err := readAnswer(newReader(bytes.NewReader(appendArg(nil, text))), false, 0)
			if err != nil || again.Value != text {
				t.Errorf("%q: %q, %v", text, again.Value, err)
			}
		}
		t.Error("reading does not end")
	})
}

// A refusal is classified by its inner code, in whatever place of a script it was raised
// and however the server's version wraps it.
func TestFault74_PlainRefusal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR Error running script (call to f_36): @user_script:1: @user_script: 1: -READONLY no.": "READONLY no.",
		"@user_script: 1: -READONLY no.":                                   "READONLY no.",
		"ERR user_script:67: READONLY no. script: 8d, on @user_script:67.": "READONLY no.",
		"ERR Error running script (call to f_36): @user_script:67: user_script:67: @user_script: 64: The user executing the script can't x": "NOPERM The user executing the script can't x",
		"ERR ACL failure in script: User u has no permissions to run the 'hgetall' command script: f3, on @user_script:103.":                "NOPERM ACL failure in script: User u has no permissions to run the 'hgetall' command",
		"ERR Protocol error: unauthenticated multibulk length":                                                                              "NOAUTH the server requires a password, and none was given: Protocol error: unauthenticated multibulk length",
		"READONLY no.": "READONLY no.",
		"ERR Error compiling script (new function): :15: WRONGTYPE no. stack traceback: [G]: in function 'call'": ErrWrongKind.Error() + "\nWRONGTYPE no. stack traceback: [G]: in function 'call'",
		"ERR user_script:3: attempt to index a nil value":                                                        "ERR user_script:3: attempt to index a nil value",
		"OOM command not allowed": "OOM command not allowed",
	} {
		err := PlainRefusal(&Refusal{text})
		if err.Error() != want || !errors.As(err, new(redis.Error)) {
			t.Errorf("%q is read as %q, want %q", text, err, want)
		}
	}
	if own := errors.New("x"); PlainRefusal(own) != own { //nolint:errorlint // the same one
		t.Error("another error was changed")
	}
}
