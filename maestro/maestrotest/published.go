package maestrotest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// StartPublishedServer starts the program of the published Maestro with the broker and the database of the region, and waits until
// it is ready. It logs to log; nil discards the log.
func (r *Region) StartPublishedServer(program string, log io.Writer) *Server {
	r.t.Helper()
	dir := filepath.Join(r.Dir, "published")
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
	identity := filepath.Join(r.Dir, maestroapi.ServerName)
	broker := write("mqtt.yaml", fmt.Sprintf(`brokerHost: %s
caFile: %[2]s/ca.crt
clientCertFile: %[2]s/tls.crt
clientKeyFile: %[2]s/tls.key
topics:
  sourceEvents: %[3]s
  agentEvents: %[4]s
`, r.BrokerAddress, identity, maestroapi.SourceEventsTopic("maestro", "+"), maestroapi.AgentEventsTopic("maestro", "+")))
	command := func(arguments ...string) *exec.Cmd {
		c := exec.Command(program, append(arguments, db...)...)
		c.Env = append(os.Environ(), "MAESTRO_ENV=production")
		c.Stdout, c.Stderr = log, log
		return c
	}
	if err := command("migration").Run(); err != nil {
		r.t.Fatalf("maestro migration: %v", err)
	}
	rest, grpc, health, metrics := reservePort(r.t), reservePort(r.t), reservePort(r.t), reservePort(r.t)
	server := command("server", "--server-hostname=127.0.0.1",
		"--http-server-bindport="+rest, "--grpc-server-bindport="+grpc, "--health-check-server-bindport="+health, "--metrics-server-bindport="+metrics,
		"--client-id=maestro-0", "--source-id=maestro", "--subscription-type=broadcast", "--heartbeat-interval=3", "--disable-grpc-tls=true",
		"--message-broker-type=mqtt", "--message-broker-config-file="+broker)
	process, err := spawn.Start(server, syscall.SIGKILL)
	if err != nil {
		r.t.Fatalf("maestro server: %v", err)
	}
	p := &Process{Done: make(chan struct{})}
	go func() { <-process.Exited(); close(p.Done) }()
	p.Stop = func() { process.Kill(); <-p.Done }
	r.t.Cleanup(p.Stop)
	// Before its first heartbeats it drops statuses.
	eventually.Soon(r.t, "the published server is ready", func() error {
		select {
		case <-p.Done:
			r.t.Fatal("the published server terminated")
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

	return &Server{Process: p, GRPC: "127.0.0.1:" + grpc, REST: "127.0.0.1:" + rest, Plaintext: true}
}

func reservePort(t testing.TB) string {
	t.Helper()
	port, err := spawn.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return strconv.Itoa(port.Number)
}
