// Package ports finds blocks of loopback TCP ports for a region, and says who has a port that is taken.
package ports

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// A block is searched below the range that the kernel takes the ports of outgoing connections from (32768 by default),
// because those come and go, and above the one that hosted API servers get theirs from.
const (
	firstBase = 26000
	endOfBase = 32000
	attempts  = 200
)

// Taken is a port that something else listens on.
type Taken struct {
	// Name is what the port is wanted for.
	Name string
	Port int
	// Holder is the process that has it, as in `nginx (pid 12)`; empty when it cannot be known.
	Holder string
}

// Error tells the port and who has it.
func (t *Taken) Error() string {
	holder := "another process"
	if t.Holder != "" {
		holder = t.Holder
	}
	return fmt.Sprintf("port %d, wanted for %s, is taken by %s", t.Port, t.Name, holder)
}

// FreeBlock finds size consecutive free ports and returns the first.
func FreeBlock(size int) (int, error) {
	for range attempts {
		base := firstBase + rand.IntN(endOfBase-firstBase-size)
		if blockIsFree(base, size) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("found no %d free ports in a row between %d and %d", size, firstBase, endOfBase)
}

func blockIsFree(base, size int) bool {
	for port := base; port < base+size; port++ {
		if free(port) != nil {
			return false
		}
	}
	return true
}

// AwaitFree waits until every port, by what it is wanted for, is free; at most patience, for ports of processes that are
// just ending. It returns a *Taken for one that is not.
func AwaitFree(ctx context.Context, wanted map[string]int, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		taken := check(wanted)
		if taken == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			taken.Holder = holder(taken.Port)
			return taken
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// check returns the taken port with the lowest number, or nil.
func check(wanted map[string]int) *Taken {
	var lowest *Taken
	for name, port := range wanted {
		if free(port) != nil && (lowest == nil || port < lowest.Port) {
			lowest = &Taken{Name: name, Port: port}
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
