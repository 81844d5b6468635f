package agent_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// processVariable makes the test program run an agent until it is killed. It has the URL of the gateway, the file with its certificate and the address
// of the API server of a cluster, separated by spaces.
const processVariable = "HCPMESH_TEST_TUNNEL_AGENT"

// runAgent runs the agent that the variable describes.
func runAgent(description string) error {
	parts := strings.Fields(description)
	if len(parts) != 3 {
		return fmt.Errorf("%s: %q", processVariable, description)
	}
	gateway, err := url.Parse(parts[0])
	if err != nil {
		return err
	}
	certificate, err := os.ReadFile(parts[1])
	if err != nil {
		return err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(certificate) {
		return errors.New("the file has no certificate")
	}
	var clusters addresses
	clusters.Store(clusterID, parts[2])
	newAgent(gateway, authorities, &clusters, slog.New(slog.DiscardHandler)).Run(context.Background())
	return nil
}

// BenchmarkMemory opens as many connections as a tunnel has, and reports how much the resident memory of a process with the agent grows for each, and its
// memory with all of them.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		r := newRegion(b, 1, nil)
		r.serve(clusterID, echo)
		address, err := r.clusters.Address(b.Context(), clusterID)
		if err != nil {
			b.Fatal(err)
		}
		certificate := filepath.Join(b.TempDir(), "gateway.pem")
		if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.front.Certificate().Raw}), 0o600); err != nil {
			b.Fatal(err)
		}
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), processVariable+"="+strings.Join([]string{r.front.URL, certificate, address}, " "))
		process, err := spawn.Start(command, syscall.SIGKILL)
		if err != nil {
			b.Fatal(err)
		}
		r.connected(0)
		before := procfs.Resident(process.PID())
		var connections []net.Conn
		for range tunnel.MaxConnections {
			conn := r.dial(clusterID)
			if err := exchange(conn, []byte("x")); err != nil {
				b.Fatal(err)
			}
			connections = append(connections, conn)
		}
		with := procfs.Resident(process.PID())
		b.ReportMetric(float64(with-before)/(1<<10)/tunnel.MaxConnections, "KiB/connection")
		b.ReportMetric(float64(with)/(1<<20), "MiB")
		for _, conn := range connections {
			_ = conn.Close()
		}
		process.Kill()
	}
}
