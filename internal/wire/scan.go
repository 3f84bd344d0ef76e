package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// scanBatch is how many keys a server searches for one request. With a million keys of other programs, that takes
	// less than a millisecond, so it hardly delays other requests.
	scanBatch = 1000

	// maxRescans limits how often the scan of one server begins again.
	maxRescans = 3
)

// ask sends a request until it is answered. failure contains the errors of the earlier tries.
func (s *Server) ask(ctx context.Context, scan Scan, request Request) (answer any, failure, err error) {
	retry := NewRetry(scan.Each, scan.Within, nil)
	err = retry.Do(ctx, MayRetry, func() (err error) {
		answer, err = s.Send(ctx, "", request, retry.Timeout())
		failure = errors.Join(failure, err)
		return err
	})
	return answer, failure, err
}

// refuseShard returns an error if the server has only some names of a cluster: a list would lack the other names. A
// server that refuses the question is taken for a server with all names.
func (s *Server) refuseShard(ctx context.Context, scan Scan) error {
	if s.cfg.Sharded || s.whole.Load() {
		return nil
	}
	answer, _, err := s.ask(ctx, scan, Command("cluster", "info"))
	if v := VerdictOf(err); err != nil && (v.Outcome != Refused || v.Retry) {
		return err
	}
	for line := range strings.Lines(Text(answer)) {
		primaries, ok := strings.CutPrefix(strings.TrimSpace(line), "cluster_size:")
		if n, err := strconv.Atoi(primaries); ok && err == nil && n > 1 {
			return fmt.Errorf("lockcore: the server is one of the %d primaries of a cluster, and has only some of its names; "+
				"the client must be one of the cluster (redisurl: redis+cluster)", n)
		}
	}
	s.whole.Store(true)
	return nil
}

// Scan finds all keys that exist during the whole call.
func (s *Server) Scan(ctx context.Context, scan Scan) error {
	if err := s.refuseShard(ctx, scan); err != nil {
		return err
	}
	cursor, rescans := "0", 0
	for {
		request := Command("scan", cursor, "match", scan.Match, "count", scanBatch).Large()
		answer, failure, err := s.ask(ctx, scan, request)
		if err != nil {
			return err
		}
		// After a failure, another server may answer, and the cursor is invalid there.
		if failure != nil && cursor != "0" {
			if rescans++; rescans > maxRescans {
				return failure
			}
			cursor = "0"
			continue
		}
		list, _ := answer.([]any)
		if len(list) != 2 {
			return request.OddReply(answer)
		}
		rows, ok := list[1].([]any)
		if cursor = Text(list[0]); !ok || cursor == "" {
			return request.OddReply(answer)
		}
		keys := make([]string, len(rows))
		for i, key := range rows {
			keys[i] = Text(key)
		}
		scan.Found(keys, scanBatch)
		if cursor == "0" {
			return nil
		}
	}
}
