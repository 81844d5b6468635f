package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// Blocks are searched below the range of the kernel's ephemeral ports (32768 and above by default), whose use changes
// all the time, and above the range of hosted API servers.
const (
	firstBase    = 26000
	endOfBase    = 32000
	portAttempts = 200
)

// PortTaken is the error for a port on which another process listens.
type PortTaken struct {
	// Name has the process that needs the port and the name of the port.
	Name string
	Port int
	// Holder is the process that uses it, as in `nginx (pid 12)`; empty if it is unknown.
	Holder string
}

// Error returns the port, its purpose and the process that uses it.
func (t *PortTaken) Error() string {
	holder := "another process"
	if t.Holder != "" {
		holder = t.Holder
	}
	return fmt.Sprintf("port %d, needed for %s, is in use by %s", t.Port, t.Name, holder)
}

// FreePorts returns the first of size consecutive free ports.
func FreePorts(size int) (int, error) {
	for range portAttempts {
		base := firstBase + rand.IntN(endOfBase-firstBase-size)
		if blockIsFree(base, size) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("finding %d consecutive free ports between %d and %d: none found", size, firstBase, endOfBase)
}

func blockIsFree(base, size int) bool {
	for port := base; port < base+size; port++ {
		if free(port) != nil {
			return false
		}
	}
	return true
}

// AwaitFreePorts waits until all ports are free, at most for timeout, because processes that are terminating may still use
// them. wanted holds the ports by the name in the error. It returns a *Taken for a port in use.
func AwaitFreePorts(ctx context.Context, wanted map[string]int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		taken := checkPorts(wanted)
		if taken == nil {
			return nil
		}
		if backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			taken.Holder = holder(taken.Port)
			return taken
		}
	}
}

// checkPorts returns the port in use with the lowest number, or nil.
func checkPorts(wanted map[string]int) *PortTaken {
	var lowest *PortTaken
	for name, port := range wanted {
		if free(port) != nil && (lowest == nil || port < lowest.Port) {
			lowest = &PortTaken{Name: name, Port: port}
		}
	}
	return lowest
}

func free(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return listener.Close()
}
