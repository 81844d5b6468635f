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
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

// program is the server as its own operating system process, so that it can be killed at any instruction.
type program struct {
	t       testing.TB
	binary  string
	args    []string
	command *exec.Cmd
	ready   chan [2]string
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
	if err := os.WriteFile(url, []byte(r.Database+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return &program{t: r.t, binary: binary, args: []string{
		"--listen-grpc", "127.0.0.1:0", "--listen-rest", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--die-with-parent",
		"--identity-dir", filepath.Join(r.Dir, "maestro-server"), "--database-url-file", url,
		"--mqtt-address", r.BrokerAddress, "--mqtt-identity-dir", filepath.Join(r.Dir, "maestro-server"), "--resend-after", "2s",
	}}
}

// start runs the program and gives its addresses.
func (p *program) start() *maestrotest.Server {
	p.t.Helper()
	p.command = exec.Command(p.binary, p.args...)
	stderr, err := p.command.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.ready = make(chan [2]string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line struct{ Msg, GRPC, REST string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				p.ready <- [2]string{line.GRPC, line.REST}
			}
		}
	}()
	select {
	case at := <-p.ready:
		return &maestrotest.Server{GRPC: at[0], REST: at[1]}
	case <-time.After(30 * time.Second):
		p.t.Fatal("the server program does not serve")
		return nil
	}
}

func (p *program) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// migrated says whether the database can be used.
func (r *region) migrated(s *maestrotest.Server) bool {
	return r.Call(s, "GET", "/consumers?size=0", nil, nil) == 200
}

// TestServerIsKilled kills the server again and again while a source publishes and the agent reports. Whatever was
// answered with success ends applied, at its newest version, once; and is deleted in the end.
func TestServerIsKilled(t *testing.T) {
	r := newRegion(t)
	p := r.buildServer()
	s := p.start()
	defer func() { p.kill() }()
	var consumer string
	eventually.Holds(t, 30*time.Second, "the server program takes a registration", func() error {
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
	insist := func(action string, b bundle) {
		eventually.Holds(t, 60*time.Second, action+" of "+b.ID, func() error {
			_, err := current().publish(action, b)
			switch status.Code(err) {
			case codes.OK, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
			default:
				t.Errorf("%s of %s: %v", action, b.ID, err)
			}
			return err
		})
	}
	works := make([]bundle, 120)
	for i := range works {
		works[i] = newBundle(consumer, "one")
	}
	published := make(chan struct{})
	go func() {
		defer close(published)
		inParallel(4, works, func(b bundle) { insist("create", b); insist("update", b.with("two")) })
	}()
	for kills := 0; kills < 5; kills++ {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-published:
		}
		p.kill()
		next := r.source(p.start(), "cluster-service")
		mu.Lock()
		cs = next
		mu.Unlock()
	}
	<-published
	last := current()
	last.subscribe()
	last.resync(nil)
	for _, b := range works {
		last.untilApplied(b.ID, 2)
		object, err := r.configMap(b.configMapName())
		if err != nil {
			t.Fatal(err)
		}
		if value := object.Object["data"].(map[string]any)["key"]; value != "two" {
			t.Errorf("applied with %v", value)
		}
		insist("delete", b)
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

// TestAgentIsKilled kills the agent again and again while it applies and deletes.
func TestAgentIsKilled(t *testing.T) {
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	cluster(t)
	kubeconfig := management.Cluster(t).Kubeconfig()
	binary := r.build("maestro-agent")
	start := func() *exec.Cmd {
		command := exec.Command(binary, "--die-with-parent", "--ops-listen", "", "--kubeconfig", kubeconfig, "--consumer-name", consumer,
			"--mqtt-address", r.BrokerAddress, "--mqtt-identity-dir", filepath.Join(r.Dir, consumer))
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		return command
	}
	kill := func(command *exec.Cmd) {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	works := make([]bundle, 120)
	for i := range works {
		works[i] = newBundle(consumer, "one")
	}
	agent := start()
	defer func() { kill(agent) }()
	reach := func(n int, what string, condition func(statusEvent) bool) {
		t.Helper()
		eventually.Holds(t, 120*time.Second, fmt.Sprintf("%d works are %s", n, what), func() error {
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
	inParallel(4, works, func(b bundle) { cs.must("create", b) })
	for _, n := range []int{10, 40, 80} {
		reach(n, "applied", applied)
		kill(agent)
		agent = start()
	}
	reach(len(works), "applied", applied)
	inParallel(4, works, func(b bundle) { cs.must("delete", b) })
	for _, n := range []int{10, 40, 80} {
		reach(n, "deleted", deleted)
		kill(agent)
		agent = start()
	}
	reach(len(works), "deleted", deleted)
	for _, b := range works {
		if _, err := r.configMap(b.configMapName()); !apierrors.IsNotFound(err) {
			t.Errorf("ConfigMap %s of a deleted work: %v", b.configMapName(), err)
		}
	}
}
