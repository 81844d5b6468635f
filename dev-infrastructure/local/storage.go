package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
)

// The databases, one for each service that has one.
const (
	ClusterServiceDatabase = "clusterservice"
	MaestroDatabase        = "maestro"
)

// databaseURLFile holds the URL of a database, with its password.
func (r *Region) databaseURLFile(database string) string {
	return r.state.path("secrets", "postgres-"+database+".url")
}

// postgresServer adapts a PostgreSQL server to the supervisor.
type postgresServer struct{ *postgresserver.Server }

func (postgresServer) Err() error { return errors.New("PostgreSQL ended") }

// postgres is the one PostgreSQL server. Its databases and the files with their URLs are made whenever it became ready.
func (r *Region) postgres() supervisor.Spec {
	// Launch and Settle of one life follow each other, so that the server needs no lock: the supervisor orders them.
	servers := make(chan *postgresserver.Server, 1)
	return supervisor.Spec{
		Name:  "postgres",
		Ports: map[string]int{"sql": r.port(postgresPort)},
		Launch: func(ctx context.Context, log *os.File) (supervisor.Running, error) {
			// The folder around it must let PostgreSQL's user pass; what is inside is closed to everybody else.
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
			select {
			case <-servers:
			default:
			}
			servers <- server
			return postgresServer{server}, nil
		},
		Settle: func(ctx context.Context) error {
			server := <-servers
			servers <- server
			for _, database := range []string{ClusterServiceDatabase, MaestroDatabase} {
				if err := server.CreateDatabase(ctx, database, ""); err != nil {
					return err
				}
				if err := replaceFile(r.databaseURLFile(database), []byte(server.URL(database)), 0o600); err != nil {
					return fmt.Errorf("writing down the URL of the database %s: %w", database, err)
				}
			}
			return nil
		},
		// A fast shutdown: open transactions are rolled back, connections are closed.
		StopSignal: syscall.SIGINT,
		Grace:      20 * time.Second,
	}
}

// etcd is shared by all Kubernetes API servers of the region, each below its own prefix.
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
		Ready:   httpReady(client+"/health", nil),
		// It is safe against crashes, and would wait for its clients' watches to end.
		Grace: 2 * time.Second,
	}
}
