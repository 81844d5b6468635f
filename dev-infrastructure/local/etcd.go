package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

func (r *Region) etcdURL() string { return "https://" + r.address(etcdPort) }

// etcdAuthorityDir is the folder of etcd's authority. The runtime of hosted API servers uses it too.
func (r *Region) etcdAuthorityDir() string { return r.state.path("etcd-ca") }

// etcdAdministrator returns the files of etcdusers.Root.
func (r *Region) etcdAdministrator() kubeapi.EtcdTLS {
	return kubeapi.EtcdFiles(r.etcdAuthorityDir(), r.state.path("etcd-ca", "administrator"))
}

// issueEtcd issues the certificates of etcd, of its users for the management clusters into their folders, and of etcdusers.Root.
func (r *Region) issueEtcd() (*kubeapi.EtcdAuthority, error) {
	signer, err := kubeapi.CreateEtcdAuthority(r.etcdAuthorityDir())
	if err != nil {
		return nil, err
	}
	signer.ClientCA = filepath.Join(r.etcdAuthorityDir(), clientCAFile)
	dir := filepath.Dir(r.etcdAdministrator().KeyFile)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := signer.Issue(dir, etcdusers.Root); err != nil {
		return nil, err
	}
	for _, m := range r.clusters {
		if _, err := signer.Issue(r.managementDir(m), m.etcdUser().Prefix); err != nil {
			return nil, err
		}
	}
	return signer, nil
}

// etcdUser returns the user of the management cluster's API server. It compacts etcd, also for hosted API servers.
func (m *managementCluster) etcdUser() etcdusers.User {
	return etcdusers.User{Prefix: "/" + m.name, Compacts: true}
}

// etcd returns the spec of the etcd that all Kubernetes API servers of the region share. Each has its own prefix and a user that can read
// and write only the keys below it. Health and metrics of etcd are on a port of their own, without TLS.
func (r *Region) etcd() supervisor.Spec {
	client, peer, ops := r.etcdURL(), "https://"+r.address(etcdPeerPort), "http://"+r.address(etcdOps)
	arguments := []string{
		"--name=local",
		"--data-dir=" + r.state.path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=local=" + peer,
		"--listen-metrics-urls=" + ops,
		"--quota-backend-bytes=4294967296",
		"--log-level=warn",
	}
	arguments = append(arguments, r.etcdAuthority.ServerArguments()...)
	arguments = append(arguments, r.etcdAuthority.PeerArguments()...)
	if r.config.Profiling {
		arguments = append(arguments, "--enable-pprof")
	}
	if r.config.Throwaway {
		arguments = append(arguments, "--unsafe-no-fsync")
	}
	return supervisor.Spec{
		Name:    "etcd",
		Program: r.thirdParty("bin", "etcd"),
		Args:    arguments,
		Ports:   r.ports("etcd"),
		// /health executes a read with consensus and reports alarms.
		Ready: httpReady(ops+"/health", nil),
		// /metrics needs no consensus.
		Live:    httpLive(ops+"/metrics", nil),
		Settle:  r.provisionEtcd,
		DataDir: r.state.path("etcd"),
		// It survives a kill, and a graceful shutdown would wait for its clients' watches.
		Grace: 2 * time.Second,
	}
}

// provisionEtcd creates the users of the management clusters and makes etcd authorize its clients. The runtime of hosted API servers
// creates and deletes their users.
func (r *Region) provisionEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	config, err := r.etcdAdministrator().Config()
	if err != nil {
		return err
	}
	users, err := etcdusers.Open(r.etcdURL(), config)
	if err != nil {
		return err
	}
	defer func() { _ = users.Close() }()
	if err := users.Enable(ctx); err != nil {
		return err
	}
	for _, m := range r.clusters {
		if err := users.Ensure(ctx, m.etcdUser()); err != nil {
			return fmt.Errorf("creating the users of etcd: %w", err)
		}
	}
	return nil
}
