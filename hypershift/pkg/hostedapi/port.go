package hostedapi

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"time"
)

// PortRange is an inclusive range of loopback ports, written as "21000-25999". It should be outside the kernel's
// ephemeral range, so that no outgoing connection occupies a control plane's port while its server restarts.
type PortRange struct{ First, Last int }

// DefaultPortRange is below Linux's ephemeral ports, which begin at 32768.
var DefaultPortRange = PortRange{First: 21000, Last: 25999}

// Set parses a range. With String it makes PortRange a flag.Value.
func (r *PortRange) Set(text string) error {
	var first, last int
	if n, err := fmt.Sscanf(text, "%d-%d", &first, &last); err != nil || n != 2 || first < 1 || last > 65535 || first > last {
		return fmt.Errorf("%q is not a port range such as 21000-25999", text)
	}
	r.First, r.Last = first, last
	return nil
}

// String returns the range in the format that Set parses.
func (r *PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func portFree(port int32) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// portWait is how long a server waits for its own port before it takes another one, and portPause the pause between two attempts.
const (
	portWait  = 5 * time.Second
	portPause = 20 * time.Millisecond
)

// awaitPort waits until isFree reports that a port is free, for at most portWait. The API server of a runtime that was killed can hold its port for
// half a second after its process cannot be found any more: the kernel closes its sockets last. It returns errStopped if stop is closed meanwhile.
func awaitPort(isFree func() bool, stop <-chan struct{}) (free bool, err error) {
	for deadline := time.Now().Add(portWait); !isFree(); {
		if time.Now().After(deadline) {
			return false, nil
		}
		select {
		case <-stop:
			return false, errStopped
		case <-time.After(portPause):
		}
	}
	return true, nil
}

var errNoPort = errors.New("all ports of the range for hosted API servers are in use")

// pick returns a free port that is not taken. The search begins at an offset that depends on the name, so that the
// runtimes of several management clusters rarely try the same port at the same time.
func (r *PortRange) pick(name string, taken func(int32) bool) (int32, error) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	size := r.Last - r.First + 1
	for i := range size {
		port := int32(r.First + (int(hash.Sum32()%uint32(size))+i)%size)
		if !taken(port) && portFree(port) {
			return port, nil
		}
	}
	return 0, errNoPort
}
