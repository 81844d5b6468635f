package installation

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// Supplier creates what charts expect in their namespaces on a cluster without Azure's add-ons: certificates of the region's authority, keys,
// and the authorities that programs trust. The namespaces are those of the chart `cluster`.
type Supplier struct {
	// Target is a region for the services of the service cluster, or a stamp for the programs of its management cluster.
	Target    values.Target
	Authority *mesh.Authority
	Secrets   *Secrets
	// Dir is the folder of the files. They are secret. Another Supplier with the same folder supplies the same keys.
	Dir string
	// Given are the files of secrets that this package cannot create, for example the pull secret, by the name of the secret in its vault.
	Given map[string]string
}

// Supply creates the Secrets and the ConfigMap that the chart of a program expects, and renews its certificates.
func (s *Supplier) Supply(ctx context.Context, name string) error {
	w, ok := workload.Find(mesh.Peer(name))
	if !ok {
		return fmt.Errorf("supplying %s: no chart installs it", name)
	}
	if !values.Applies(w, s.Target) {
		return fmt.Errorf("supplying %s: %s has no chart of it", name, s.Target.Name)
	}
	computed, err := values.Of(w, s.Target)
	if err != nil {
		return err
	}
	secrets, err := s.files(w, computed)
	if err != nil {
		return fmt.Errorf("supplying %s: %w", name, err)
	}
	for secret, files := range secrets {
		if err := s.Secrets.Keep(ctx, name, secret, files); err != nil {
			return fmt.Errorf("supplying %s: %w", name, err)
		}
	}
	if err := s.Secrets.trust(ctx, name, map[string]string{"region.crt": string(s.Authority.CertificatePEM())}); err != nil {
		return fmt.Errorf("supplying %s: %w", name, err)
	}
	return nil
}

// Renew issues a new certificate for a program, which its Secret follows, and returns the folder of the files.
func (s *Supplier) Renew(program mesh.Peer) (dir string, err error) {
	if program == mesh.MaestroAgent {
		// The MQTT broker takes the name of the consumer from the certificate.
		return s.issue(program, fmt.Sprint(s.Target.Configuration.Get("managementCluster", "name").Value))
	}
	return s.issue(program, string(program), fmt.Sprintf("%s.%s.svc", program, program))
}

func (s *Supplier) issue(peer mesh.Peer, hosts ...string) (dir string, err error) {
	dir = filepath.Join(s.Dir, "identities", string(peer))
	return dir, s.Authority.Issue(dir, peer, hosts...)
}

// files returns the files of each Secret that a chart expects, by key of the Secret.
func (s *Supplier) files(w workload.Workload, v *values.Values) (map[string]map[string]string, error) {
	name := string(w.Peer)
	if v.Identity.Secret == "" && len(v.Secrets.Volumes) == 0 {
		return nil, nil // it has neither a certificate nor secrets
	}
	dir, err := s.Renew(w.Peer)
	if err != nil {
		return nil, err
	}
	own, secrets := IdentityFiles(dir), map[string]map[string]string{}
	if v.Identity.Secret != "" {
		secrets[v.Identity.Secret] = own
	}
	if v.Migration != nil && v.Migration.Identity.Secret != "" {
		migration, err := s.issue(migrations()[w.Peer])
		if err != nil {
			return nil, err
		}
		secrets[v.Migration.Identity.Secret] = IdentityFiles(migration)
	}
	for _, volume := range v.Secrets.Volumes {
		files := map[string]string{}
		for _, file := range volume.Files {
			if file.Path == corev1.TLSCertKey || file.Path == corev1.TLSPrivateKeyKey {
				// The authority of the region issues the certificates for other services, too.
				files[file.Path] = own[file.Path]
				continue
			}
			if files[file.Path], err = s.key(w.Peer, volume.Vault, file); err != nil {
				return nil, err
			}
		}
		secrets[name+"-"+volume.Name] = files
	}
	return secrets, nil
}

// IdentityFiles returns the files of an identity's folder by the keys of a Secret.
func IdentityFiles(dir string) map[string]string {
	return map[string]string{
		corev1.TLSCertKey:       filepath.Join(dir, mesh.CertificateFile),
		corev1.TLSPrivateKeyKey: filepath.Join(dir, mesh.KeyFile),
		"ca.crt":                filepath.Join(dir, mesh.CAFile),
	}
}

// migrations are the identities of the jobs `migrate`, by service.
func migrations() map[mesh.Peer]mesh.Peer {
	return map[mesh.Peer]mesh.Peer{mesh.MaestroServer: mesh.MaestroMigration, mesh.ClusterService: mesh.ClusterServiceMigration}
}

// key returns the file of a secret, which it creates unless it was given or exists.
func (s *Supplier) key(peer mesh.Peer, vault string, file values.File) (string, error) {
	if given := s.Given[file.Secret]; given != "" {
		return given, nil
	}
	create := creators(peer)[file.Path]
	if create == nil {
		return "", fmt.Errorf("the secret %s needs a file: nothing can create it here", file.Secret)
	}
	dir := filepath.Join(s.Dir, "vaults", vault)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, file.Secret)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := create(path); err != nil {
		return "", fmt.Errorf("creating the secret %s: %w", file.Secret, err)
	}
	return path, nil
}

// creators returns the functions that create secrets of a program, by the name of the file in the chart.
func creators(peer mesh.Peer) map[string]func(path string) error {
	return map[mesh.Peer]map[string]func(string) error{
		mesh.Frontend:       {"credential-key": seal.Create, "skip-token-key": seal.Create},
		mesh.ClusterService: {"secrets-key": seal.Create},
		mesh.Admin:          {"intent-key": intent.CreateKeys, "ticket-validator-token": createToken},
	}[peer]
}

// createToken writes a random bearer token.
func createToken(path string) error { return authority.WriteDurably(path, []byte(rand.Text()), 0o600) }
