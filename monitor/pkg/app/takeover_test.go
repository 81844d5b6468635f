package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// replicaVariable is the environment variable with the replicaConfig of a child process, in JSON.
const replicaVariable = "HCPMESH_MONITOR_REPLICA"

// replicaConfig is what a replica in a process of its own needs.
type replicaConfig struct {
	Name, Farm, ClusterService string
	CosmosEndpoint, CosmosKey  string
	Interval                   time.Duration
}

// runReplica is the main function of the child process. It ends with SIGTERM, and with the parent's end of standard input.
func runReplica() int {
	var config replicaConfig
	if err := json.Unmarshal([]byte(os.Getenv(replicaVariable)), &config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	limitHeap()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	connection, err := grpc.NewClient("passthrough:///"+config.ClusterService, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = connection.Close() }()
	db, err := database.Open(ctx, database.Options{Endpoint: config.CosmosEndpoint, Key: config.CosmosKey})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer db.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, config.Farm)
	}
	p := process.New("monitor", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	err = Work(ctx, p, db, connection, Options{Replica: config.Name, LeaseDuration: lease, Connections: 100_000, interval: config.Interval, dial: dial})
	if !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startProcess starts a replica as a process. The caller must wait for it.
func (r *region) startProcess(name string, interval time.Duration) *exec.Cmd {
	r.t.Helper()
	config := must.Get(json.Marshal(replicaConfig{Name: name, Farm: r.farm.Address(), ClusterService: r.target,
		CosmosEndpoint: r.cosmos.Options.Endpoint, CosmosKey: r.cosmos.Options.Key, Interval: interval}))(r.t)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), replicaVariable+"="+string(config))
	output := &strings.Builder{}
	command.Stderr = output
	if _, err := command.StdinPipe(); err != nil { // closed by Wait, and by the end of this process
		r.t.Fatal(err)
	}
	must.Do(r.t, command.Start())
	r.t.Cleanup(func() {
		if command.ProcessState == nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
		if r.t.Failed() {
			r.t.Logf("%s:\n%s", name, output)
		}
	})
	return command
}

// probedSince waits until each of the clusters was probed after a time, and returns when the last one was.
func (r *region) probedSince(clusters int, since time.Time) time.Time {
	r.t.Helper()
	var last time.Time
	eventually.Soon(r.t, "every cluster is probed", func() error {
		missing := 0
		for i := range clusters {
			at := r.farm.LastRequest(uidOf(i))
			if !at.After(since) {
				missing++
			}
			if at.After(last) {
				last = at
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d clusters were not probed", missing)
		}
		return nil
	})

	return last
}

// TestReplicaIsReplacedAfterKill kills one of two replicas with SIGKILL. The other one takes over its clusters. A nightly run
// measures the cost of a replica that probes 10,000 clusters seven times: see the log.
func TestReplicaIsReplacedAfterKill(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	clusters, interval, rounds := nightly.Choose(300, 10_000), nightly.Choose(interval, 30*time.Second), nightly.Choose(1, 7)
	for i := range clusters {
		r.create(i)
	}
	began := time.Now()
	killed := r.startProcess("monitor-0", interval)
	for range rounds {
		r.probedSince(clusters, time.Now())
	}
	other := r.startProcess("monitor-1", interval)
	eventually.Soon(t, "the second replica has opened connections", func() error {
		if accepted := r.farm.Accepted(); accepted < int64(clusters)*5/4 {
			return fmt.Errorf("%d connections were opened", accepted)
		}
		return nil
	})

	since := time.Now()
	must.Do(t, killed.Process.Kill())
	_ = killed.Wait()
	last := r.probedSince(clusters, since)
	t.Logf("%d clusters: the last one was probed %s after the kill, with an interval of %s and leases of %s", clusters, last.Sub(since).Round(10*time.Millisecond), interval, lease)
	if usage, ok := killed.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.Logf("the first replica ran %s with %s CPU and %d MiB at most", since.Sub(began).Round(time.Second), killed.ProcessState.UserTime()+killed.ProcessState.SystemTime(), usage.Maxrss>>10)
	}
	must.Do(t, other.Process.Signal(syscall.SIGTERM))
	if err := other.Wait(); err != nil {
		t.Errorf("the other replica: %v", err)
	}
}
