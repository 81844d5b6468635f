package local

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/authorities"
	"github.com/hcpmesh/hcpmesh/internal/authority"
)

// Names of authorities. Those of the Kubernetes API servers have the names of the management clusters.
const (
	// ServicesAuthority is that of the processes of the region.
	ServicesAuthority = "services"
	// EtcdAuthority is that of etcd and its users.
	EtcdAuthority = "etcd"
)

// clientCAFile has the authorities whose client certificates a server accepts. The file ca.crt beside it has those that its clients trust.
const clientCAFile = "client-ca.crt"

// kubeAuthority is an authority of etcd or of a management cluster. Its store is a folder in dir, from which servers and clients read what
// publish writes.
type kubeAuthority struct {
	dir   string
	store *authorities.Store[*authority.Authority]
}

// openKubeAuthority opens the authority with a folder, or creates it. Each one has another subject, so that a server's list of the
// authorities that it accepts shows which of them it has loaded.
func openKubeAuthority(dir, name string) (*kubeAuthority, error) {
	store, err := authorities.Open(filepath.Join(dir, "authority"), func(dir string) (*authority.Authority, error) {
		return authority.Open(dir, name+" "+rand.Text())
	})
	return &kubeAuthority{dir, store}, err
}

// trustedByClients returns the authorities that clients trust: from the step Issuing on only the next one, whose certificates the servers
// present by the time the clients read it.
func (a *kubeAuthority) trustedByClients() []byte {
	if a.store.Step() == authorities.Trusting {
		return a.store.Bundle()
	}
	return a.store.Signer().CertificatePEM()
}

// publish writes the authority that issues, and the authorities that clients and servers trust in the current step.
func (a *kubeAuthority) publish() error {
	key, err := a.store.SignerKey()
	if err != nil {
		return err
	}
	if err := authority.WriteFile(filepath.Join(a.dir, clientCAFile), a.store.Bundle(), 0o644); err != nil {
		return err
	}
	if err := authority.WriteFile(filepath.Join(a.dir, authority.KeyFile), key, 0o600); err != nil {
		return err
	}
	return authority.WriteFile(filepath.Join(a.dir, authority.CertificateFile), a.trustedByClients(), 0o644)
}

// issueKubernetes issues the certificates of etcd, of the API servers of management clusters and of their clients before the processes
// start. It completes replacements that were interrupted.
func (r *Region) issueKubernetes() error {
	complete := func(dir, name string) error {
		a, err := openKubeAuthority(dir, name)
		if err != nil {
			return err
		}
		for a.store.Step() != authorities.None {
			if err := a.store.Advance(); err != nil {
				return fmt.Errorf("replacing the authority of %s: %w", name, err)
			}
		}
		return a.publish()
	}
	for _, m := range r.clusters {
		if err := complete(r.managementDir(m), m.name); err != nil {
			return fmt.Errorf("opening the authority of %s: %w", m.name, err)
		}
		var err error
		if m.pki, err = r.issue(m); err != nil {
			return fmt.Errorf("issuing the certificates of %s: %w", m.name, err)
		}
	}
	if err := complete(r.etcdAuthorityDir(), EtcdAuthority); err != nil {
		return fmt.Errorf("opening the authority of etcd: %w", err)
	}
	var err error
	if r.etcdAuthority, err = r.issueEtcd(); err != nil {
		return fmt.Errorf("issuing the certificates of etcd: %w", err)
	}
	return nil
}

// RotateAuthority replaces an authority by a new one while the processes run: ServicesAuthority, EtcdAuthority, or that of a management
// cluster by its name. It calls note before each step. When it returns an error, the step that was reached stays in use, and the next call
// or the next start of the region continues.
func (r *Region) RotateAuthority(ctx context.Context, name string, note func(authorities.Step)) error {
	r.mu.Lock()
	phase := r.phase
	r.mu.Unlock()
	if !phase.Running() {
		return fmt.Errorf("the region is %s: authorities are replaced while it runs", phase)
	}
	switch i := slices.IndexFunc(r.clusters, func(m *managementCluster) bool { return m.name == name }); {
	case name == ServicesAuthority:
		return r.rotateServices(ctx, note)
	case name == EtcdAuthority:
		return r.rotateKubernetes(ctx, r.etcdAuthorityDir(), name, note, r.distributeEtcd)
	case i >= 0:
		m := r.clusters[i]
		return r.rotateKubernetes(ctx, r.managementDir(m), name, note, func(ctx context.Context, a *kubeAuthority) error {
			return r.distributeManagement(ctx, m, a)
		})
	}
	names := []string{ServicesAuthority, EtcdAuthority}
	for _, m := range r.clusters {
		names = append(names, m.name)
	}
	return fmt.Errorf("unknown authority %q; the authorities are %s", name, strings.Join(names, ", "))
}

func (r *Region) rotateKubernetes(ctx context.Context, dir, name string, note func(authorities.Step), distribute func(context.Context, *kubeAuthority) error) error {
	r.kubernetes.Lock()
	defer r.kubernetes.Unlock()
	a, err := openKubeAuthority(dir, name)
	if err != nil {
		return err
	}
	return replaceAuthority(ctx, a.store, r.noteStep(name, note), func() error {
		if err := a.publish(); err != nil {
			return err
		}
		return distribute(ctx, a)
	})
}

// noteStep returns a function that stores the step of a replacement for the status, and passes it on.
func (r *Region) noteStep(name string, note func(authorities.Step)) func(authorities.Step) {
	return func(step authorities.Step) {
		r.mu.Lock()
		r.rotations[name] = step
		if step == authorities.None {
			delete(r.rotations, name)
		}
		r.mu.Unlock()
		note(step)
	}
}

// replaceAuthority completes the step that was reached, and makes the next ones. distribute gives all processes what the current step needs,
// and returns when they use it.
func replaceAuthority[A authorities.Authority](ctx context.Context, store *authorities.Store[A], note func(authorities.Step), distribute func() error) error {
	if store.Step() != authorities.None {
		// The distribution of this step may be incomplete.
		if err := distribute(); err != nil {
			return err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the replacement of the authority was interrupted: %w", err)
		}
		if err := store.Advance(); err != nil {
			return err
		}
		note(store.Step())
		if err := distribute(); err != nil {
			return err
		}
		if store.Step() == authorities.None {
			return nil
		}
	}
}

// distributeEtcd gives etcd and its clients what a step needs. All of them read the authorities that they trust when they start, and their
// own certificates in each handshake. The API servers start after etcd, because a start needs it.
func (r *Region) distributeEtcd(ctx context.Context, a *kubeAuthority) error {
	var clients []string
	for _, m := range r.clusters {
		clients = append(clients, m.apiServerName())
	}
	for _, m := range r.clusters {
		clients = append(clients, m.hypershiftName()) // and with it the hosted API servers
	}
	etcd := []string{"etcd"}
	switch a.store.Step() {
	case authorities.Trusting:
		if err := r.restartAll(ctx, etcd); err != nil {
			return err
		}
	case authorities.Issuing:
		if _, err := r.issueEtcd(); err != nil {
			return err
		}
	case authorities.Removing:
		clients = nil
		if err := r.restartAll(ctx, etcd); err != nil {
			return err
		}
	case authorities.None:
		return nil
	}
	if !r.config.without("etcd") {
		if err := awaitServer(ctx, r.address(etcdPort), a.trustedByClients(), a.store.Bundle()); err != nil {
			return err
		}
	}
	return r.restartAll(ctx, clients)
}

// distributeManagement gives the servers of a management cluster and their clients what a step needs. The servers follow their files. The
// clients read their kubeconfigs when they start.
func (r *Region) distributeManagement(ctx context.Context, m *managementCluster, a *kubeAuthority) error {
	step := a.store.Step()
	if step == authorities.None {
		return nil
	}
	if step != authorities.Removing {
		if _, err := r.issue(m); err != nil {
			return err
		}
	}
	if !r.config.without(m.apiServerName()) {
		if err := awaitServer(ctx, r.address(management(m.index, managementAPI)), a.trustedByClients(), a.store.Bundle()); err != nil {
			return err
		}
	}
	if !r.config.without(m.controllersName()) {
		if err := awaitServer(ctx, r.address(management(m.index, managementController)), a.trustedByClients(), nil); err != nil {
			return err
		}
	}
	if step == authorities.Removing {
		return nil
	}
	return r.restartAll(ctx, []string{m.controllersName(), m.hypershiftName(), m.agentName(), m.egressProxyName(), m.insideName(), m.logForwarderName(), tunnelName(m.name)})
}

// restartAll restarts those of the processes that the region has, one after the other.
func (r *Region) restartAll(ctx context.Context, names []string) error {
	for _, name := range names {
		if r.config.without(name) {
			continue
		}
		if err := r.Restart(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
