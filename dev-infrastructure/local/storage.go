package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
)

// The names of the databases, one for each service that has one.
const (
	ClusterServiceDatabase = "clusterservice"
	MaestroDatabase        = "maestro"
)

// databaseURLFile returns the file with the URL of a database, including its password.
func (r *Region) databaseURLFile(database string) string {
	return r.state.path("secrets", "postgres-"+database+".url")
}

// postgres returns the spec of the PostgreSQL server. It creates the databases and the files with their URLs each time
// the server becomes ready.
func (r *Region) postgres() supervisor.Spec {
	// The supervisor calls the other functions after Launch of the same start.
	var current atomic.Pointer[postgresserver.Server]
	return supervisor.Spec{
		Name:    "postgres",
		Ports:   map[string]int{"sql": r.port(postgresPort)},
		DataDir: r.state.record.PostgresDir,
		Launch: func(ctx context.Context, log *os.File) (supervisor.Running, error) {
			// PostgreSQL's user must be able to enter the parent folder; the data directory itself is closed to others.
			if err := os.MkdirAll(filepath.Dir(r.state.record.PostgresDir), 0o755); err != nil {
				return nil, err
			}
			server, err := postgresserver.Start(ctx, postgresserver.Options{
				DataDir:   r.state.record.PostgresDir,
				Port:      r.port(postgresPort),
				Throwaway: r.config.Throwaway,
				Log:       log,
			})
			if err != nil {
				return nil, err
			}
			current.Store(server)
			return server, nil
		},
		Ready: func(ctx context.Context) error { return current.Load().Ready(ctx) },
		Live:  func(ctx context.Context) error { return current.Load().Live(ctx) },
		Settle: func(ctx context.Context) error {
			server := current.Load()
			for _, database := range []string{ClusterServiceDatabase, MaestroDatabase} {
				if err := server.CreateDatabase(ctx, database, ""); err != nil {
					return err
				}
				if err := replaceFile(r.databaseURLFile(database), []byte(server.URL(database)), 0o600); err != nil {
					return fmt.Errorf("writing the URL of database %s: %w", database, err)
				}
			}
			return nil
		},
		// SIGINT is a fast shutdown: open transactions are rolled back and connections are closed.
		StopSignal: syscall.SIGINT,
		Grace:      20 * time.Second,
	}
}

// etcd returns the spec of the etcd that all Kubernetes API servers of the region share, each with its own prefix.
func (r *Region) etcd() supervisor.Spec {
	client := "http://" + r.address(etcdPort)
	peer := "http://" + r.address(etcdPeerPort)
	arguments := []string{
		"--name=local",
		"--data-dir=" + r.state.path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=local=" + peer,
		"--quota-backend-bytes=4294967296",
		"--log-level=warn",
	}
	if r.config.Throwaway {
		arguments = append(arguments, "--unsafe-no-fsync")
	}
	return supervisor.Spec{
		Name:    "etcd",
		Program: r.thirdParty("bin", "etcd"),
		Args:    arguments,
		Ports:   map[string]int{"client": r.port(etcdPort), "peer": r.port(etcdPeerPort)},
		// /health executes a read with consensus and reports alarms.
		Ready:   httpReady(client+"/health", nil),
		Live:    httpLive(client+"/version", nil),
		DataDir: r.state.path("etcd"),
		// It survives a kill, and a graceful shutdown would wait for its clients' watches.
		Grace: 2 * time.Second,
	}
}
