package servers

import "testing"

// No server gets a port of another one, which may be stopped, or one that a client could take.
func TestPortsAreReserved(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 300 { // of 5000: without a reservation some would come twice
		port, free, err := reservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer free()
		if seen[port] || seen[port-1] || port%2 != 0 || port+10001 >= 32768 {
			t.Fatalf("port %d: wanted an even one that is reserved for this call, with the bus below 32768", port)
		}
		seen[port] = true
	}
}
