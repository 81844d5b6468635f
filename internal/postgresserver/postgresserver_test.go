package postgresserver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// dataDir returns a folder that the unprivileged user can enter. It cannot enter t.TempDir if the tests run as root.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "hcpmesh-postgres-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must.Do(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "server")
}

func TestServerKeepsItsDataAndPasswordAcrossCrashes(t *testing.T) {
	ctx := t.Context()
	dir := dataDir(t)
	databases := []Database{{Name: "fleet", Owner: Role{Name: "owner"}, Runtime: Role{Name: "service"}}}
	port := must.Get(spawn.ReservePort())(t)
	defer port.Release()
	first := must.Get(Start(ctx, Options{DataDir: dir, Port: port.Number, Throwaway: true, Databases: databases}))(t)
	must.Do(t, first.Provision(ctx))
	before := first.AdministratorURL("fleet")
	first.Kill()

	second := must.Get(Start(ctx, Options{DataDir: dir, Port: port.Number, Throwaway: true, Databases: databases}))(t)
	defer second.Kill()
	if second.AdministratorURL("fleet") != before {
		t.Error("the URL changed with a restart")
	}
	if err := second.Provision(ctx); err != nil {
		t.Errorf("creating a database that exists: %v", err)
	}
}

// TestStoppedServerDoesNotRespond stops the server with SIGSTOP: the kernel still accepts connections for it.
func TestStoppedServerDoesNotRespond(t *testing.T) {
	ctx := t.Context()
	server := must.Get(Start(ctx, Options{DataDir: dataDir(t), Throwaway: true}))(t)
	defer server.Kill()
	probes := map[string]func(context.Context) error{"Ready": server.Ready, "Live": server.Live}
	for name, probe := range probes {
		if err := probe(ctx); err != nil {
			t.Errorf("%s of a running server: %v", name, err)
		}
	}
	must.Do(t, syscall.Kill(server.Pid(), syscall.SIGSTOP))
	for name, probe := range probes {
		short, cancel := context.WithTimeout(ctx, time.Second)
		if err := probe(short); err == nil {
			t.Errorf("%s of a stopped server succeeded", name)
		}
		cancel()
	}
	must.Do(t, syscall.Kill(server.Pid(), syscall.SIGCONT))
	for name, probe := range probes {
		if err := probe(ctx); err != nil {
			t.Errorf("%s after the server continued: %v", name, err)
		}
	}
}

func TestPortInUseIsNamedInTheError(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	server, err := Start(context.Background(), Options{DataDir: dataDir(t), Port: port, Throwaway: true})
	if err == nil {
		server.Kill()
		t.Fatal("started on a port in use")
	}
	if want := strconv.Itoa(port); !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not name the port: %v", err)
	}
}
