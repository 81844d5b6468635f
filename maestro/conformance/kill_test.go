package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

// program is the server as a process of the operating system, so that it can be killed at any instruction.
type program struct {
	t       testing.TB
	binary  string
	args    []string
	process *spawn.Process
}

func (r *region) build(command string) string {
	r.t.Helper()
	binary := filepath.Join(r.Dir, command+"-program")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/"+command).CombinedOutput(); err != nil {
		r.t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return binary
}

func (r *region) buildServer() *program {
	r.t.Helper()
	binary := r.build("maestro-server")
	url := filepath.Join(r.Dir, "database-url")
	must.Do(r.t, os.WriteFile(url, []byte(r.Database+"\n"), 0o600))
	return &program{t: r.t, binary: binary, args: append(audittest.Flags(audittest.Options(r.t)),
		"--listen-grpc", "127.0.0.1:0", "--listen-rest", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--identity-dir", filepath.Join(r.Dir, "maestro-server"), "--database-url-file", url,
		"--mqtt-address", r.BrokerAddress, "--mqtt-identity-dir", filepath.Join(r.Dir, "maestro-server"), "--resend-after", "2s",
	)}
}

// start runs the program and returns its addresses.
func (p *program) start() *maestrotest.Server {
	p.t.Helper()
	command := exec.Command(p.binary, p.args...)
	stderr := must.Get(command.StderrPipe())(p.t)
	p.process = must.Get(spawn.Start(command, syscall.SIGKILL))(p.t)
	addresses := make(chan string, 2) // gRPC, then REST
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && (line.Msg == "serving gRPC" || line.Msg == "serving REST") {
				addresses <- line.Address
			}
		}
	}()
	eventually.Soon(p.t, "the server program serves", func() error {
		if len(addresses) < 2 {
			return errors.New("it has logged no addresses")
		}
		return nil
	})

	return &maestrotest.Server{GRPC: <-addresses, REST: <-addresses}
}

func (p *program) kill() { p.process.Kill() }

// migrated reports whether the database is migrated.
func (r *region) migrated(s *maestrotest.Server) bool {
	return r.CallAs(mesh.Admin, s, "GET", "/resource-bundles?size=0", nil, nil) == 200
}

// TestServerIsKilled kills the server several times while a source publishes and the agent reports. Every accepted work is applied
// at its newest version and deleted in the end.
func TestServerIsKilled(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	r := newRegion(t)
	p := r.buildServer()
	s := p.start()
	defer func() { p.kill() }()
	var consumer string
	eventually.Soon(t, "the server program accepts a registration", func() error {
		if !r.migrated(s) {
			return errors.New("its database is not migrated")
		}
		consumer = r.newConsumer(s)
		return nil
	})

	r.startAgent(consumer)

	var mu sync.Mutex
	cs := r.source(s, "cluster-service")
	current := func() *source { mu.Lock(); defer mu.Unlock(); return cs }
	var accepted atomic.Int64
	untilAccepted := func(action string, b bundle) error {
		ctx, cancel := eventually.Context(t)
		defer cancel()
		err := eventually.Repeat(ctx, func() error {
			_, err := current().publish(action, b)
			switch status.Code(err) {
			case codes.OK, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
			default:
				t.Errorf("%s of %s: %v", action, b.ID, err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", action, b.ID, err)
		}
		accepted.Add(1)
		return nil
	}
	works := make([]bundle, 120)
	for i := range works {
		works[i] = newBundle(consumer, "one")
	}
	published := make(chan struct{})
	var publishing error
	go func() {
		defer close(published)
		publishing = inParallel(4, works, func(b bundle) error {
			if err := untilAccepted("create", b); err != nil {
				return err
			}
			return untilAccepted("update", b.with("two"))
		})
	}()
	for kill := range 5 {
		want := int64(kill+1) * int64(len(works)) / 3 // of two requests for each work
		eventually.Soon(t, fmt.Sprintf("%d requests are accepted", want), func() error {
			select {
			case <-published:
				return nil
			default:
			}
			if got := accepted.Load(); got < want {
				return fmt.Errorf("%d are", got)
			}
			return nil
		})
		p.kill()
		next := r.source(p.start(), "cluster-service")
		mu.Lock()
		cs = next
		mu.Unlock()
	}
	<-published
	if publishing != nil {
		t.Fatal(publishing)
	}
	last := current()
	last.subscribe()
	last.resync(nil)
	for _, b := range works {
		last.untilApplied(b.ID, 2)
		object := must.Get(r.configMap(b.configMapName()))(t)
		if value := object.Object["data"].(map[string]any)["key"]; value != "two" {
			t.Errorf("applied with %v", value)
		}
		must.Do(t, untilAccepted("delete", b))
	}
	p.kill()
	last = r.source(p.start(), "cluster-service")
	last.subscribe()
	hashes := map[string]string{}
	for _, b := range works {
		hashes[b.ID] = "unknown"
	}
	last.resync(hashes)
	for _, b := range works {
		last.untilDeleted(b.ID)
		r.untilGone(b.configMapName())
	}
}

// TestAgentIsKilled kills the agent several times while it applies and deletes.
func TestAgentIsKilled(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	cluster(t)
	kubeconfig := management.Cluster(t).Kubeconfig()
	binary, keys := r.build("maestro-agent"), filepath.Join(t.TempDir(), "private.json")
	must.Do(t, seal.CreatePair(keys, filepath.Join(t.TempDir(), "public.json")))
	start := func() *spawn.Process {
		command := exec.Command(binary, "--ops-listen", "", "--kubeconfig", kubeconfig, "--consumer-name", consumer,
			"--mqtt-address", r.BrokerAddress, "--mqtt-identity-dir", filepath.Join(r.Dir, consumer), "--secrets-key-file", keys)
		return must.Get(spawn.Start(command, syscall.SIGKILL))(t)
	}
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	works := make([]bundle, 120)
	for i := range works {
		works[i] = newBundle(consumer, "one")
	}
	agent := start()
	defer func() { agent.Kill() }()
	reach := func(n int, what string, condition func(statusEvent) bool) {
		t.Helper()
		eventually.Soon(t, fmt.Sprintf("%d works are %s", n, what), func() error {
			have := 0
			for _, b := range works {
				if condition(cs.status(b.ID)) {
					have++
				}
			}
			if have < n {
				return fmt.Errorf("%d are", have)
			}
			return nil
		})

	}
	applied := func(st statusEvent) bool { return st.applied(1) }
	deleted := func(st statusEvent) bool { return st.is("Deleted") }
	cs.mustAll("create", works, 4)
	for _, n := range []int{10, 40, 80} {
		reach(n, "applied", applied)
		agent.Kill()
		agent = start()
	}
	reach(len(works), "applied", applied)
	cs.mustAll("delete", works, 4)
	for _, n := range []int{10, 40, 80} {
		reach(n, "deleted", deleted)
		agent.Kill()
		agent = start()
	}
	reach(len(works), "deleted", deleted)
	for _, b := range works {
		if _, err := r.configMap(b.configMapName()); !apierrors.IsNotFound(err) {
			t.Errorf("ConfigMap %s of a deleted work: %v", b.configMapName(), err)
		}
	}
}
