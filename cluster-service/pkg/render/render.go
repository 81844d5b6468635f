// Package render builds the manifests of a cluster for its management cluster: the namespaces, the HostedCluster with the
// objects it refers to, the NodePools, and requests for certificates and revocations. Each set is a Bundle for Maestro. A
// Renderer is a pure function of the region's configuration and of a cluster aggregate: the same input gives the same bytes,
// so the digest of a rendering shows whether a management cluster is up to date. Manifests are built from the APIs' Go types
// and list only the fields that Cluster Service owns, because the HyperShift operator owns other fields of the same objects.
// All of them are applied server-side.
package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Renderer builds the manifests of one region. Its methods are safe for concurrent use.
type Renderer struct {
	Region fleet.Region
	// Environment is part of every namespace's name, at most 10 characters.
	Environment string
	// Developer permits clusters without identities, on a developer's machine.
	Developer bool
	// Config and PullSecret are the initial settings; Change replaces them. The pull secret is the same for all clusters.
	Config     *config.Config
	PullSecret []byte
	// Open decrypts the sealed signing key of a cluster; owner is the cluster's UID.
	Open func(owner string, sealed []byte) ([]byte, error)
	// ShardKeys seal the values of Secrets for the agents of the shards, by the shard's name. They are initial settings too.
	ShardKeys map[string]*seal.PublicKeys

	changed atomic.Pointer[Settings]
}

// Settings are the part of a renderer that may change while it is used.
type Settings struct {
	Config     *config.Config
	PullSecret []byte
	ShardKeys  map[string]*seal.PublicKeys
}

// Change replaces the settings for all later renderings. Works that were rendered before keep their digest, so they can be
// found by comparing it.
func (r *Renderer) Change(s Settings) { r.changed.Store(&s) }

// snapshot returns a renderer with the current settings, so that one rendering never mixes two settings.
func (r *Renderer) snapshot() *Renderer {
	s := r.changed.Load()
	if s == nil {
		return r
	}
	return &Renderer{Region: r.Region, Environment: r.Environment, Developer: r.Developer, Config: s.Config, PullSecret: s.PullSecret, ShardKeys: s.ShardKeys, Open: r.Open}
}

// ShardKeyIDs returns the IDs of the keys that seal Secrets now, by shard.
func (r *Renderer) ShardKeyIDs() map[string]string {
	ids := map[string]string{}
	for shard, key := range r.snapshot().ShardKeys {
		ids[shard] = key.ID()
	}
	return ids
}

// HasShardKey reports whether Secrets can be sealed for a shard now.
func (r *Renderer) HasShardKey(shard string) bool { return r.snapshot().ShardKeys[shard] != nil }

// Placement returns the current rules of placement.
func (r *Renderer) Placement() *placement.Rules { return &r.snapshot().Config.Placement }

// Bundle is the content of a work. Configs[i] belongs to Manifests[i].
type Bundle struct {
	Manifests []json.RawMessage
	Configs   []workv1.ManifestConfigOption
	Digest    string
}

// Digest returns the digest of the desired content of a work, and so implements fleet.Renderer. The signing key is not part
// of the digest and is not decrypted for it, because it never changes. The pull secret contributes its hash.
func (r *Renderer) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	r = r.snapshot()
	main, rest, err := r.objects(t, w)
	if err != nil {
		return "", err
	}
	return r.digest(t, w, main, rest)
}

// Bundle renders the desired content of a work, with the values of Secrets sealed for the agent of the shard.
func (r *Renderer) Bundle(t *fleet.ClusterAggregate, w *fleet.Work) (*Bundle, error) {
	r = r.snapshot()
	if w.Kind == fleet.RolloutWork {
		return r.rollout(t.Cluster)
	}
	main, rest, err := r.objects(t, w)
	if err != nil {
		return nil, err
	}
	sum, err := r.digest(t, w, main, rest)
	if err != nil {
		return nil, err
	}
	bundle := &Bundle{Digest: sum}
	if w.Kind != fleet.CredentialWork && w.Kind != fleet.RevocationWork {
		if err := unstructured.SetNestedField(main.Object, sum, "metadata", "annotations", feedback.DigestAnnotation); err != nil {
			return nil, err
		}
	}
	if w.Kind == fleet.HostedCluster {
		secrets, err := r.secrets(t.Cluster)
		if err != nil {
			return nil, err
		}
		rest = append(rest, secrets...)
	}
	// The objects that the main object refers to are applied before it.
	for _, o := range append(rest, main) {
		if err := bundle.add(o, manifestConfig(o)); err != nil {
			return nil, err
		}
	}
	if w.Kind == fleet.HostedCluster {
		namespace, config, err := r.controlPlaneNamespace(t.Cluster)
		if err != nil {
			return nil, err
		}
		if err := bundle.addReadOnly(namespace, config); err != nil {
			return nil, err
		}
	}
	if w.Kind == fleet.HostedCluster || w.Kind == fleet.CredentialWork {
		authority, config, err := r.servingCA(t.Cluster)
		if err != nil {
			return nil, err
		}
		if err := bundle.addReadOnly(authority, config); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

func (b *Bundle) add(o *unstructured.Unstructured, config workv1.ManifestConfigOption) error {
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	b.Manifests, b.Configs = append(b.Manifests, text), append(b.Configs, config)
	return nil
}

// addReadOnly adds an object that the agent reads and never applies.
func (b *Bundle) addReadOnly(o *unstructured.Unstructured, config workv1.ManifestConfigOption) error {
	config.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}
	return b.add(o, config)
}

// objects returns the objects of a work without its secrets: the main object, and the objects that it refers to.
func (r *Renderer) objects(t *fleet.ClusterAggregate, w *fleet.Work) (main *unstructured.Unstructured, rest []*unstructured.Unstructured, err error) {
	object, others, err := r.typed(t, w)
	if err != nil {
		return nil, nil, fmt.Errorf("render work %s: %w", w.Name, err)
	}
	if main, err = manifest(object); err != nil {
		return nil, nil, err
	}
	rest, err = manifests(others...)
	return main, rest, err
}

func (r *Renderer) typed(t *fleet.ClusterAggregate, w *fleet.Work) (main metav1.Object, rest []metav1.Object, err error) {
	switch w.Kind {
	case fleet.Namespaces:
		return r.namespace(t.Cluster), nil, nil
	case fleet.HostedCluster:
		if main, err = r.hostedCluster(t); err != nil {
			return nil, nil, err
		}
		rest, err = r.externalAuthObjects(t.Cluster, t.RenderedExternalAuth())
		return main, append(r.servingCertificate(t), rest...), err
	case fleet.NodePoolWork:
		p := t.Pool(w.OwnerUID)
		if p == nil {
			return nil, nil, fmt.Errorf("node pool %s is unknown", w.OwnerUID)
		}
		return r.nodePool(t.Cluster, p), nil, nil
	case fleet.CredentialWork:
		c := t.Credential(w.OwnerUID)
		if c == nil {
			return nil, nil, fmt.Errorf("credential %s is unknown", w.OwnerUID)
		}
		request, err := r.certificateRequest(t.Cluster, c)
		if err != nil {
			return nil, nil, err
		}
		return request, []metav1.Object{r.approval(t.Cluster, request.Name)}, nil
	case fleet.RevocationWork:
		v := t.Revocation(w.OwnerUID)
		if v == nil {
			return nil, nil, fmt.Errorf("revocation %s is unknown", w.OwnerUID)
		}
		main, err = r.revocation(t.Cluster, v)
		return main, nil, err
	}
	return nil, nil, fmt.Errorf("kind %d is unknown", w.Kind)
}

// digest covers the objects, the feedback rules of the main object, a hash of the pull secret, the ID of the key that seals it, and
// what is read of the control plane's namespace and of the API server's authority. The hash does not help to guess the pull secret, which is long and random.
func (r *Renderer) digest(t *fleet.ClusterAggregate, w *fleet.Work, main *unstructured.Unstructured, rest []*unstructured.Unstructured) (string, error) {
	parts := []any{main, rest, manifestConfig(main)}
	if w.Kind == fleet.HostedCluster {
		sum := sha256.Sum256(r.PullSecret)
		namespace, config, err := r.controlPlaneNamespace(t.Cluster)
		if err != nil {
			return "", err
		}
		authority, authorityConfig, err := r.servingCA(t.Cluster)
		if err != nil {
			return "", err
		}
		keyID := ""
		if key := r.ShardKeys[t.Cluster.Shard]; key != nil { // Bundle reports a missing key
			keyID = key.ID()
		}
		parts = append(parts, hex.EncodeToString(sum[:]), keyID, namespace, config, authority, authorityConfig)
	}
	text, err := json.Marshal(parts) // encoding/json sorts the keys of maps
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

func (r *Renderer) namespace(c *fleet.Cluster) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: typeMeta(corev1.SchemeGroupVersion, "Namespace"), ObjectMeta: r.metadata(c, r.namespaceOf(c), "")}
}

// controlPlaneNamespace returns the namespace that HyperShift creates for a control plane, and which of its values the agent
// reports. The agent only reads it.
func (r *Renderer) controlPlaneNamespace(c *fleet.Cluster) (*unstructured.Unstructured, workv1.ManifestConfigOption, error) {
	namespace, err := manifest(&corev1.Namespace{TypeMeta: typeMeta(corev1.SchemeGroupVersion, "Namespace"),
		ObjectMeta: metav1.ObjectMeta{Name: fleet.ControlPlaneNamespace(r.Environment, c)}})
	if err != nil {
		return nil, workv1.ManifestConfigOption{}, err
	}
	config := manifestConfig(namespace)
	config.FeedbackRules = feedback.ControlPlaneNamespaceRules()
	return namespace, config, nil
}
