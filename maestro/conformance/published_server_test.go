package conformance

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

// published is the program of the published Maestro. It is built on demand only: tooling/third-party/build.sh maestro.
func published(t testing.TB) string {
	t.Helper()
	program := filepath.Join(root(t), ".build", "third-party", "bin", "maestro")
	if _, err := os.Stat(program); err != nil {
		t.Skip("the published Maestro is not built; `make peers` builds it")
	}
	return program
}

// startPublishedServer starts the published server around the region's broker and a database of its own.
func (r *region) startPublishedServer() *maestrotest.Server {
	r.t.Helper()
	program, dir := published(r.t), filepath.Join(r.Dir, "published")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		return path
	}
	at, err := url.Parse(r.Database)
	if err != nil {
		r.t.Fatal(err)
	}
	password, _ := at.User.Password()
	db := []string{
		"--db-host-file=" + write("host", at.Hostname()), "--db-port-file=" + write("port", at.Port()),
		"--db-name-file=" + write("name", at.Path[1:]), "--db-user-file=" + write("user", at.User.Username()),
		"--db-password-file=" + write("password", password), "--db-rootcert=" + write("root.crt", ""), "--db-sslmode=disable",
	}
	identity := filepath.Join(r.Dir, "maestro-server")
	broker := write("mqtt.yaml", fmt.Sprintf(`brokerHost: %s
caFile: %[2]s/ca.crt
clientCertFile: %[2]s/tls.crt
clientKeyFile: %[2]s/tls.key
topics:
  sourceEvents: sources/maestro/consumers/+/sourceevents
  agentEvents: sources/maestro/consumers/+/agentevents
`, r.BrokerAddress, identity))
	command := func(arguments ...string) *exec.Cmd {
		c := exec.Command(program, append(arguments, db...)...)
		c.Env = append(os.Environ(), "MAESTRO_ENV=production")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if os.Getenv("MAESTRO_TEST_LOG") != "" {
			c.Stdout, c.Stderr = r.t.Output(), r.t.Output()
		}
		return c
	}
	if err := command("migration").Run(); err != nil {
		r.t.Fatalf("maestro migration: %v", err)
	}
	rest, grpc, health, metrics := freePort(r.t), freePort(r.t), freePort(r.t), freePort(r.t)
	server := command("server", "--server-hostname=127.0.0.1",
		"--http-server-bindport="+rest, "--grpc-server-bindport="+grpc, "--health-check-server-bindport="+health, "--metrics-server-bindport="+metrics,
		"--client-id=maestro-0", "--source-id=maestro", "--subscription-type=broadcast", "--heartbeat-interval=3", "--disable-grpc-tls=true",
		"--message-broker-type=mqtt", "--message-broker-config-file="+broker)
	if err := server.Start(); err != nil {
		r.t.Fatalf("maestro server: %v", err)
	}
	p := &maestrotest.Process{Done: make(chan struct{})}
	go func() { _ = server.Wait(); close(p.Done) }()
	p.Stop = func() { _ = server.Process.Kill(); <-p.Done }
	r.t.Cleanup(p.Stop)
	// Statuses are dropped until its first heartbeats have made it ready.
	eventually.Holds(r.t, 60*time.Second, "the published server is ready", func() error {
		select {
		case <-p.Done:
			r.t.Fatal("the published server ended; MAESTRO_TEST_LOG=1 shows why")
		default:
		}
		response, err := http.Get("http://127.0.0.1:" + health + "/healthcheck")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	return &maestrotest.Server{Process: p, GRPC: "127.0.0.1:" + grpc, REST: "127.0.0.1:" + rest, Plain: true}
}

func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// TestPublishedServer: the server can be exchanged for the published one. Our agent applies, feeds back, updates and deletes
// what a source publishes there.
func TestPublishedServer(t *testing.T) {
	r := newRegion(t)
	s := r.startPublishedServer()
	consumer := r.newConsumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()

	works := make([]bundle, 20)
	for i := range works {
		works[i] = newBundle(consumer, "one")
		cs.must("create", works[i])
	}
	for _, b := range works {
		cs.untilFedBack(b.ID, 1, "one")
		cs.must("update", b.with("two"))
	}
	for _, b := range works {
		cs.untilFedBack(b.ID, 2, "two")
		cs.must("delete", b)
	}
	for _, b := range works {
		cs.untilDeleted(b.ID)
		r.untilGone(b.configMapName())
	}
}
