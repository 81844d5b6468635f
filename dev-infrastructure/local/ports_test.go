package local

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestPortInUseNamesItsProcess(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	err = AwaitFreePorts(context.Background(), map[string]int{"the front door": port}, time.Millisecond)
	var taken *PortTaken
	if !errors.As(err, &taken) {
		t.Fatalf("AwaitFree() = %v, want a *Taken", err)
	}
	for _, want := range []string{strconv.Itoa(port), "the front door", "pid " + strconv.Itoa(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

func TestAwaitFreeWaitsForPort(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := listener.Addr().(*net.TCPAddr).Port
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = listener.Close()
	}()
	if err := AwaitFreePorts(context.Background(), map[string]int{"a": port}, time.Minute); err != nil {
		t.Error(err)
	}
	<-closed
}

func TestFreeBlockIsFree(t *testing.T) {
	base := must.Get(FreePorts(40))(t)
	if !blockIsFree(base, 40) {
		t.Errorf("the block from %d is not free", base)
	}
}

// TestPortsOfProcessesDiffer checks the largest region: no two processes have the same port, and all ports are in the region's block.
func TestPortsOfProcessesDiffer(t *testing.T) {
	c := Config{With: []string{WithObservability, WithTraces}, Faults: true, ManagementClusters: maxManagementClusters}
	owners := map[service]string{}
	for _, p := range c.processes(c.managementClusters()) {
		for name, port := range p.ports {
			if owners[port] != "" || port < 0 || port >= portsPerRegion {
				t.Errorf("%s: the port %s has the offset %d, as %q", p.name, name, port, owners[port])
			}
			owners[port] = p.name
		}
	}
}
