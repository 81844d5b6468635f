package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// serveUntilDrained is the program of the tests. It prints the address at which it serves the health endpoints and a page.
func serveUntilDrained(ctx context.Context, p *Process) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("/", p.OpsHandler())
	mux.HandleFunc("/page", func(http.ResponseWriter, *http.Request) {})
	return ServeHTTP(ctx, &http.Server{Handler: mux}, listener, time.Minute)
}

// startDraining starts the program with a drain period and returns its address.
func startDraining(t *testing.T, period string) (command *exec.Cmd, address string) {
	t.Helper()
	command = child(t, "drain", period)
	stdout := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	address = must.Get(bufio.NewReader(stdout).ReadString('\n'))(t)
	return command, strings.TrimSpace(address)
}

func TestDrainingProcessServesAndIsNotReady(t *testing.T) {
	command, address := startDraining(t, "1h")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	// get returns a response whose body was read, so that its connection is used again.
	get := func(path string) (*http.Response, Readiness) {
		response := must.Get(client.Get("http://" + address + path))(t)
		defer response.Body.Close()
		var readiness Readiness
		_ = json.NewDecoder(response.Body).Decode(&readiness)
		return response, readiness
	}
	if response, _ := get("/readyz"); response.StatusCode != http.StatusOK {
		t.Fatalf("/readyz before the signal: %s", response.Status)
	}
	if response, _ := get("/page"); response.Close {
		t.Error("a connection is closed before the signal")
	}
	must.Do(t, command.Process.Signal(syscall.SIGTERM))
	eventually.Soon(t, "the process is not ready", func() error {
		response, readiness := get("/readyz")
		if response.StatusCode != http.StatusServiceUnavailable || readiness.NotReady[drainReason] == "" {
			return fmt.Errorf("%s %+v", response.Status, readiness)
		}
		return nil
	})

	if response, _ := get("/healthz"); response.StatusCode != http.StatusOK {
		t.Errorf("/healthz while draining: %s", response.Status)
	}
	if response, _ := get("/page"); response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("a request while draining: %s, connection closed: %t", response.Status, response.Close)
	}
	must.Do(t, command.Process.Signal(syscall.SIGTERM))
	if err := command.Wait(); err != nil {
		t.Errorf("terminated with %v after the second signal", err)
	}
}

func TestProcessEndsAfterDraining(t *testing.T) {
	command, _ := startDraining(t, "10ms")
	must.Do(t, command.Process.Signal(syscall.SIGTERM))
	if err := command.Wait(); err != nil {
		t.Errorf("terminated with %v", err)
	}
}

func TestNegativeDrainIsRefused(t *testing.T) {
	err := runUntilSignal("child", Options{LogLevel: "info", Drain: -1}, func(context.Context, *Process) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "--drain") {
		t.Errorf("error %v, want one that names --drain", err)
	}
}
