package process

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestProfilesAreOnTheirSocketOnly asks the ops address and the socket of a running process.
func TestProfilesAreOnTheirSocketOnly(t *testing.T) {
	recorder := httptest.NewRecorder()
	New("frontend", slog.New(slog.DiscardHandler)).OpsHandler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil))
	if recorder.Code != http.StatusNotFound {
		t.Errorf("the ops address serves profiles: %d", recorder.Code)
	}
	dir, err := os.MkdirTemp("", "hcpmesh-profiling-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "p.sock")
	stale := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false) // as that of a killed process
	_ = stale.Close()
	options := Options{LogLevel: "error", ProfilingSocket: socket}
	err = runUntilSignal("test", options, func(ctx context.Context, _ *Process) error {
		if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket: %v, %v", info, err)
		}
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
		for path, want := range map[string]int{"/debug/pprof/heap": http.StatusOK, "/debug/pprof/cmdline": http.StatusNotFound, "/metrics": http.StatusNotFound} {
			request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://process"+path, nil))(t)
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Error(err)
				continue
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s: %s, want %d", path, response.Status, want)
			}
		}
		err := runUntilSignal("second", options, func(context.Context, *Process) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "--profiling-socket: "+socket+" is in use") {
			t.Errorf("a second process on the same socket: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, []byte("data"), 0o600))
	err = runUntilSignal("test", Options{LogLevel: "error", ProfilingSocket: file}, func(context.Context, *Process) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file in place of the socket: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
