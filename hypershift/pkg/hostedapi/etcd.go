package hostedapi

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// etcdTimeout bounds the requests to etcd of one operation.
const etcdTimeout = 20 * time.Second

// etcdAccess gives each control plane a user of etcd that can read and write only the control plane's keys.
type etcdAccess struct {
	authority *kubeapi.EtcdAuthority
	users     *etcdusers.Client
}

// openEtcd issues the Supervisor's own certificate into its folder. It does not connect yet.
func openEtcd(options *Options) (*etcdAccess, error) {
	authority, err := kubeapi.OpenEtcdAuthority(options.EtcdAuthority)
	if err != nil {
		return nil, err
	}
	files, err := authority.Issue(options.Dir, etcdusers.Root)
	if err != nil {
		return nil, fmt.Errorf("issuing the client certificate for etcd: %w", err)
	}
	config, err := files.Config()
	if err != nil {
		return nil, err
	}
	users, err := etcdusers.Open(options.EtcdServers, config)
	if err != nil {
		return nil, err
	}
	return &etcdAccess{authority, users}, nil
}

// grant creates the user of a control plane, if necessary, and issues its certificate into dir.
func (e *etcdAccess) grant(ctx context.Context, name, dir string) (kubeapi.EtcdTLS, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	if err := e.users.Ensure(ctx, etcdusers.User{Prefix: Prefix(name)}); err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	return e.authority.Issue(dir, Prefix(name))
}

// encrypted reports whether etcd has encrypted values of a control plane.
func (e *etcdAccess) encrypted(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	n, err := e.users.CountValues(ctx, Prefix(name), kubeapi.EncryptedPrefix)
	return n > 0, err
}

// remove deletes the user and the keys of a control plane. It is idempotent.
func (e *etcdAccess) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	return e.users.Remove(ctx, Prefix(name))
}

func (e *etcdAccess) close() { _ = e.users.Close() }
