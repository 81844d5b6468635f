package service_test

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/service"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

func TestOptions(t *testing.T) {
	complete := []string{"--identity-dir", "d", "--cluster-service-address", "a:1", "--location", "westus3",
		"--cosmos-endpoint", "https://localhost:8081", "--cosmos-key-file", "k"}
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"complete":          {reason: "the required flags are enough", args: complete},
		"location missing":  {reason: "a missing flag is named", args: append(complete, "--location", ""), want: "--location is required"},
		"location written":  {reason: "a wrong one too", args: append(complete, "--location", "West US 3"), want: "--location"},
		"cosmos endpoint":   {reason: "the store's flags are checked as well", args: append(complete, "--cosmos-endpoint", "x"), want: "--cosmos-endpoint"},
		"unknown":           {reason: "an unknown flag is refused", args: append(complete, "--colour", "red"), want: "colour"},
		"identity missing":  {reason: "a missing flag is named", args: append(complete, "--identity-dir", ""), want: "--identity-dir is required"},
		"no listen address": {reason: "a missing flag is named", args: append(complete, "--listen", ""), want: "--listen is required"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var options service.Options
			flags := flag.NewFlagSet("frontend", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			options.AddFlags(flags)
			err := flags.Parse(tc.args)
			if err == nil {
				err = options.Validate()
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestServe runs the whole service: only the ARM front door is let in, readiness follows Cosmos DB, and stopping it ends
// everything it started. Cluster Service is not there, which keeps nobody from being served.
func TestServe(t *testing.T) {
	cosmos, err := emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey})
	if err != nil {
		t.Fatal(err)
	}
	account := httptest.NewServer(cosmos)
	t.Cleanup(func() { account.Close(); _ = cosmos.Close() })
	authority, err := mesh.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "test")
	if err != nil {
		t.Fatal(err)
	}
	identity := func(peer mesh.Peer) (string, *mesh.Identity) {
		dir := t.TempDir()
		if err := authority.Issue(dir, peer); err != nil {
			t.Fatal(err)
		}
		loaded, err := mesh.LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		return dir, loaded
	}
	own, _ := identity(mesh.Frontend)
	_, frontDoor := identity(mesh.ARMFrontDoor)
	_, stranger := identity(mesh.Backend)
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(emulator.WellKnownKey), 0o600); err != nil {
		t.Fatal(err)
	}

	options := service.Options{IdentityDir: own, ClusterServiceAddress: "127.0.0.1:1", Location: "westus3"}
	options.Database.Endpoint, options.Database.KeyFile = account.URL, keyFile
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- service.Serve(ctx, process.New("frontend", slog.New(slog.DiscardHandler)), options, listener)
	}()
	client := func(id *mesh.Identity) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: id.ClientTLS(mesh.Frontend), ForceAttemptHTTP2: true}}
	}
	url := "https://" + listener.Addr().String()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	arm := client(frontDoor)
	for {
		status, body := get(t, arm, url+"/readyz")
		if status == http.StatusOK {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("not ready: %d %s", status, body)
		case <-tick.C:
		}
	}
	if status, body := get(t, arm, url+"/providers/Microsoft.RedHatOpenShift/operations?api-version=2026-09-01-preview"); status != http.StatusOK {
		t.Errorf("the operations list answered %d %s", status, body)
	}
	if response, err := client(stranger).Get(url + "/healthz"); err == nil {
		_ = response.Body.Close()
		t.Error("a peer that may not call the frontend was answered")
	}
	arm.CloseIdleConnections()
	stop()
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
