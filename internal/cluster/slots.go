package cluster

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const slots = 16384

// slotOf returns the slot of all keys whose hash tag is a name.
func slotOf(name string) int {
	var sum uint16
	for i := range len(name) {
		sum ^= uint16(name[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021 // CRC-16/XMODEM, as the cluster specification of Redis says
			} else {
				sum <<= 1
			}
		}
	}
	return int(sum) % slots
}

// tagOf returns a name of a slot, the same in each process.
func tagOf(slot int) string {
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slotOf(tag) == slot {
			return tag
		}
	}
}

// A view is the state of a cluster as one node reports it.
type view struct {
	epoch     uint64 // grows with each failover and moved slot
	ok        bool   // the node reaches most primaries
	primaries []slotRange
	replicas  map[string]string // address of the primary, by the address of the replica
}

type slotRange struct {
	first, last int
	addr        string
}

// newerThan reports whether to prefer a view to another one. A node that is cut off keeps its old epoch.
func (v *view) newerThan(other *view) bool {
	return other == nil || v.epoch > other.epoch || v.epoch == other.epoch && v.ok && !other.ok
}

var (
	askSlots = wire.Command("cluster", "slots")
	askInfo  = wire.Command("cluster", "info")
)

// readView reads the answers to askSlots and askInfo of the node at asked.
func readView(asked string, table, info wire.Answer) (*view, error) {
	for _, a := range []wire.Answer{table, info} {
		if a.Err != nil {
			return nil, a.Err
		}
	}
	v := &view{replicas: map[string]string{}}
	for line := range strings.Lines(wire.Text(info.Value)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "cluster_state":
			v.ok = value == "ok"
		case "cluster_current_epoch":
			v.epoch, _ = strconv.ParseUint(value, 10, 64) // 0 in an old view
		}
	}
	rows, ok := table.Value.([]any)
	if !ok {
		return nil, askSlots.OddReply(table.Value)
	}
	for _, row := range rows {
		fields, _ := row.([]any)
		if len(fields) < 3 {
			return nil, askSlots.OddReply(row)
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		if !ok1 || !ok2 || first < 0 || last >= slots {
			return nil, askSlots.OddReply(row)
		}
		primary := ""
		for i, node := range fields[2:] {
			addr, err := nodeAddr(asked, node)
			switch {
			case err != nil:
				return nil, err
			case i == 0:
				primary = addr
				v.primaries = append(v.primaries, slotRange{int(first), int(last), addr})
			default:
				v.replicas[addr] = primary
			}
		}
	}
	return v, nil
}

// nodeAddr returns the address of a node in the answer of the node at asked. A node may not know its own host, and some
// managed services have one address for all nodes. In both cases the host is empty, and the host of asked is right. It
// also replaces a loopback address, which a cluster on another machine may report.
func nodeAddr(asked string, node any) (string, error) {
	fields, _ := node.([]any)
	if len(fields) < 2 {
		return "", askSlots.OddReply(node)
	}
	host := wire.Text(fields[0])
	port, ok := fields[1].(int64)
	if !ok {
		return "", askSlots.OddReply(node)
	}
	askedHost, _, err := net.SplitHostPort(asked)
	if err != nil {
		return "", fmt.Errorf("lockcore: the address %q of a node: %w", asked, err)
	}
	if host == "" || host == "?" || isLoopback(host) && !isLoopback(askedHost) {
		host = askedHost
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
}

// redirection returns the slot and the address in a MOVED or ASK answer of the node at asked.
func redirection(asked string, answer error) (slot int, addr string, err error) {
	text := conn.PlainRefusal(answer).Error()
	fields := append(strings.Fields(text), "", "", "")[:3] // MOVED slot host:port
	host, given := "", fields[2]
	if i := strings.LastIndex(given, ":"); i >= 0 {
		host, given = strings.Trim(given[:i], "[]"), given[i+1:]
	}
	port, odd := strconv.ParseInt(given, 10, 64)
	slot, odd2 := strconv.Atoi(fields[1])
	if odd != nil || odd2 != nil || slot < 0 || slot >= slots {
		return 0, "", fmt.Errorf("lockcore: unexpected redirection %q", text)
	}
	addr, err = nodeAddr(asked, []any{host, port})
	return slot, addr, err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
