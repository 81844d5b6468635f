package installation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// ShardKeys returns the files of the keys of the region's management cluster: its agent opens Secrets with the private one, and Cluster
// Service seals them with the public one.
func (s *Outside) ShardKeys() (private, public string) {
	return filepath.Join(s.Dir, "agent-private.json"), filepath.Join(s.Dir, "agent-public.json")
}

// intentKey is the file of the keyset with which admin signs what engineers ask for.
func (s *Outside) intentKey() string { return filepath.Join(s.Dir, "intent-private.json") }

// StampSecrets returns the files of secrets that come from elsewhere, for the Supplier of the region's management cluster: the private key of
// Maestro's agent, and the public keys of intents. GivenSecrets must have been called before.
func (s *Outside) StampSecrets(stamp values.Target) (map[string]string, error) {
	r := &settings{target: stamp}
	private, _ := s.ShardKeys()
	public := filepath.Join(s.Dir, "intent-public.json")
	given := map[string]string{r.text("managementCluster", "agent", "secretsKey", "secret"): private, r.text("managementCluster", "tunnel", "intentKeys", "secret"): public}
	return given, errors.Join(r.err, keyfile.WritePublic(s.intentKey(), public))
}

// GivenSecrets creates the files of secrets that come from elsewhere, for the Supplier of a region: the pull secret, the public key of the
// agent, the keys of intents, of the session gateway and of recordings, the trust root of releases and the token of the ticket system. The audit keys of
// all services are among them, because admin needs their public keys.
func (s *Outside) GivenSecrets() (map[string]string, error) {
	r := s.settings()
	clusters := s.Target.Configuration.Get("managementClusters")
	if clusters == nil || len(clusters.Items) == 0 {
		return nil, fmt.Errorf("%s has no management cluster", s.Target.Name)
	}
	agent := fmt.Sprint(clusters.Items[0].Get("agent", "secretsPublicKey", "secret").Value)
	pullSecret := filepath.Join(s.Dir, "pull-secret")
	given := map[string]string{r.text("clusterService", "pullSecret", "secret"): pullSecret, r.text("admin", "ticketValidator", "token", "secret"): s.ticketTokenFile()}
	if err := os.WriteFile(pullSecret, []byte(`{"auths":{"registry.example":{}}}`), 0o600); err != nil {
		return nil, err
	}
	private, public := s.ShardKeys()
	if err := seal.CreatePair(private, public); err != nil {
		return nil, err
	}
	given[agent] = public
	if err := intent.CreateKeys(s.intentKey()); err != nil {
		return nil, err
	}
	given[r.text("admin", "intentKey", "secret")] = s.intentKey()
	if s.Target.Configuration.Get("gatewayEgress", "intentKeys") != nil {
		public := filepath.Join(s.Dir, "intent-public.json")
		if err := keyfile.WritePublic(s.intentKey(), public); err != nil {
			return nil, err
		}
		given[r.text("gatewayEgress", "intentKeys", "secret")] = public
	}
	for name, part := range map[string][]string{"gateway": {"gatewayAccess"}, "recording": {"gatewayAccess", "recordings"}} {
		key, publicKey := filepath.Join(s.Dir, name+"-private.json"), filepath.Join(s.Dir, name+"-public.json")
		if err := seal.CreatePair(key, publicKey); err != nil {
			return nil, err
		}
		given[r.text(append(part, "key", "secret")...)], given[r.text(append(part, "publicKey", "secret")...)] = key, publicKey
	}
	for _, w := range workload.All() {
		if !w.Audit {
			continue
		}
		key, publicKeys := filepath.Join(s.Dir, string(w.Peer)+"-audit.key"), filepath.Join(s.Dir, string(w.Peer)+"-audit.pem")
		if err := audit.CreatePair(key, publicKeys); err != nil {
			return nil, err
		}
		given[r.text(append(w.Key, "auditSigningKey", "secret")...)], given[r.text(append(w.Key, "auditPublicKeys", "secret")...)] = key, publicKeys
	}
	if _, err := s.ticketToken(); err != nil {
		return nil, err
	}
	trustRoot, err := s.SignReleases()
	if err != nil {
		return nil, err
	}
	given[r.text("clusterService", "releaseTrustRoot", "secret")] = trustRoot
	return given, r.err
}
