// Package render makes the manifests of a cluster as they stand on a management cluster: the namespaces, the HostedCluster
// with the secrets it refers to, and the NodePools, each set a Bundle for Maestro. A Renderer is a pure function of the
// region's configuration and of the rows it is given: the same input gives the same bytes, so a digest of the rendering
// says whether a management cluster is up to date. Manifests list only the fields that Cluster Service owns, because the
// HyperShift operator owns others of the same objects; all are applied server-side.
package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// object is a Kubernetes object, or a part of one.
type object = map[string]any

// Renderer makes the manifests of one region.
type Renderer struct {
	Region fleet.Region
	// Environment is part of every namespace's name, at most 10 characters.
	Environment string
	// Config and PullSecret, which is the same for all clusters of a region, are those that it begins with.
	Config     *config.Config
	PullSecret []byte
	// Open opens the sealed signing key of a cluster.
	Open func(owner string, sealed []byte) ([]byte, error)

	changed atomic.Pointer[Settings]
}

// Settings are the part of a renderer that may change while it runs.
type Settings struct {
	Config     *config.Config
	PullSecret []byte
}

// Change has it render with other settings from now on. What was rendered before keeps its digest, by which it is found.
func (r *Renderer) Change(s Settings) { r.changed.Store(&s) }

// now is the renderer with the settings of this moment, so that one rendering is never of two.
func (r *Renderer) now() *Renderer {
	s := r.changed.Load()
	if s == nil {
		return r
	}
	return &Renderer{Region: r.Region, Environment: r.Environment, Config: s.Config, PullSecret: s.PullSecret, Open: r.Open}
}

// forceUpgradeTo is HyperShift's annotation for an upgrade to one image that the cluster says it is not ready for.
const forceUpgradeTo = "hypershift.openshift.io/force-upgrade-to"

// Placement is the rules of placement of this moment.
func (r *Renderer) Placement() *placement.Rules { return &r.now().Config.Placement }

// Bundle is the content of a work.
type Bundle struct {
	Manifests []json.RawMessage
	Configs   []workv1.ManifestConfigOption
	Digest    string
}

// Digest is the digest of what a work should carry; it makes Renderer a fleet.Renderer. The signing key, which never
// changes, is not part of it and is not opened for it; of the pull secret its hash is.
func (r *Renderer) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	r = r.now()
	main, rest, err := r.objects(t, w)
	if err != nil {
		return "", err
	}
	return r.digest(w, main, rest)
}

// Bundle renders what a work should carry, secrets included.
func (r *Renderer) Bundle(t *fleet.ClusterAggregate, w *fleet.Work) (*Bundle, error) {
	r = r.now()
	if w.Kind == fleet.RolloutWork {
		return r.rollout(t.Cluster)
	}
	main, rest, err := r.objects(t, w)
	if err != nil {
		return nil, err
	}
	sum, err := r.digest(w, main, rest)
	if err != nil {
		return nil, err
	}
	bundle := &Bundle{Digest: sum}
	if w.Kind != fleet.CredentialWork && w.Kind != fleet.RevocationWork {
		main["metadata"].(object)["annotations"].(object)[feedback.DigestAnnotation] = sum
	}
	if w.Kind == fleet.HostedCluster {
		secrets, err := r.secrets(t.Cluster)
		if err != nil {
			return nil, err
		}
		// What the HostedCluster refers to comes before it.
		rest = append(rest, secrets...)
	}
	for _, o := range append(rest, main) {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		bundle.Manifests = append(bundle.Manifests, text)
		bundle.Configs = append(bundle.Configs, manifestConfig(o))
	}
	if w.Kind == fleet.CredentialWork {
		if err := bundle.read(r.servingCA(t.Cluster)); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

// objects are the objects of a work without secrets, the main one apart.
func (r *Renderer) objects(t *fleet.ClusterAggregate, w *fleet.Work) (main object, rest []object, err error) {
	switch w.Kind {
	case fleet.Namespaces:
		return r.namespace(t.Cluster), nil, nil
	case fleet.HostedCluster:
		auth := t.ExternalAuth()
		main, err = r.hostedCluster(t.Cluster, auth)
		if err != nil {
			return nil, nil, err
		}
		if image := t.ForceUpgradeTo(); image != "" {
			main["metadata"].(object)["annotations"].(object)[forceUpgradeTo] = image
		}
		return main, append(r.servingCertificate(t), r.externalAuthObjects(t.Cluster, auth)...), nil
	case fleet.NodePoolWork:
		p := t.Pool(w.OwnerUID)
		if p == nil {
			return nil, nil, fmt.Errorf("node pool %s of work %s is unknown", w.OwnerUID, w.Name)
		}
		return r.nodePool(t.Cluster, p), nil, nil
	case fleet.CredentialWork:
		c := t.Credential(w.OwnerUID)
		if c == nil {
			return nil, nil, fmt.Errorf("credential %s of work %s is unknown", w.OwnerUID, w.Name)
		}
		return r.certificateRequest(t.Cluster, c), []object{r.approval(t.Cluster, c)}, nil
	case fleet.RevocationWork:
		v := t.Revocation(w.OwnerUID)
		if v == nil {
			return nil, nil, fmt.Errorf("revocation %s of work %s is unknown", w.OwnerUID, w.Name)
		}
		return r.revocation(t.Cluster, v), nil, nil
	}
	return nil, nil, fmt.Errorf("work %s is of unknown kind %d", w.Name, w.Kind)
}

// digest covers the objects, what is asked to be reported of the main one, and a hash of the pull secret. A digest says
// nothing of the secret that would help to guess it: it is long and random.
func (r *Renderer) digest(w *fleet.Work, main object, rest []object) (string, error) {
	parts := []any{main, rest, manifestConfig(main)}
	if w.Kind == fleet.HostedCluster {
		sum := sha256.Sum256(r.PullSecret)
		parts = append(parts, hex.EncodeToString(sum[:]))
	}
	text, err := json.Marshal(parts) // encoding/json orders the keys of maps
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// resources maps the kinds that are rendered to their resources.
var resources = map[string]struct{ group, resource string }{
	"Namespace":     {"", "namespaces"},
	"Secret":        {"", "secrets"},
	"ConfigMap":     {"", "configmaps"},
	"HostedCluster": {"hypershift.openshift.io", "hostedclusters"},
	"NodePool":      {"hypershift.openshift.io", "nodepools"},

	"ControlPlaneComponent": {"hypershift.openshift.io", "controlplanecomponents"},

	"CertificateSigningRequest":         {"certificates.k8s.io", "certificatesigningrequests"},
	"CertificateSigningRequestApproval": {"certificates.hypershift.openshift.io", "certificatesigningrequestapprovals"},
	"CertificateRevocationRequest":      {"certificates.hypershift.openshift.io", "certificaterevocationrequests"},
	"SecretProviderClass":               {"secrets-store.csi.x-k8s.io", "secretproviderclasses"},
	"SecretSync":                        {"secret-sync.x-k8s.io", "secretsyncs"},
}

// manifestConfig applies an object server-side and asks for feedback where there is something to know. Force takes a field
// back that somebody else claimed: we list only fields that are ours.
func manifestConfig(o object) workv1.ManifestConfigOption {
	kind := o["kind"].(string)
	metadata := o["metadata"].(object)
	namespace, _ := metadata["namespace"].(string)
	option := workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: resources[kind].group, Resource: resources[kind].resource,
			Name: metadata["name"].(string), Namespace: namespace},
		UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply,
			ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, FieldManager: workv1.DefaultFieldManager}},
	}
	switch kind {
	case "HostedCluster":
		option.FeedbackRules, option.FeedbackScrapeType = feedback.HostedClusterRules(), workv1.FeedbackWatchType
	case "Namespace":
		option.FeedbackRules, option.FeedbackScrapeType = feedback.NamespaceRules(), workv1.FeedbackWatchType
	case "NodePool":
		option.FeedbackRules, option.FeedbackScrapeType = feedback.NodePoolRules(), workv1.FeedbackWatchType
	case "CertificateSigningRequest":
		option.FeedbackRules, option.FeedbackScrapeType = feedback.CertificateRequestRules(), workv1.FeedbackWatchType
	case "ControlPlaneComponent":
		option.FeedbackRules, option.FeedbackScrapeType = feedback.ComponentRules(), workv1.FeedbackWatchType
	case "CertificateRevocationRequest":
		option.FeedbackRules, option.FeedbackScrapeType = feedback.RevocationRules(), workv1.FeedbackWatchType
	}
	return option
}

// metadata is what all objects of a cluster carry.
func (r *Renderer) metadata(c *fleet.Cluster, name, namespace string) object {
	m := object{
		"name": name,
		"labels": object{
			"api.openshift.com/id":          c.ID(),
			"api.openshift.com/name":        labelValue(c.Spec.GetName()),
			"api.openshift.com/environment": r.Environment,
		},
		"annotations": object{},
	}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return m
}

func (r *Renderer) namespaceOf(c *fleet.Cluster) string {
	return fleet.Namespace(r.Environment, c.ID())
}

func (r *Renderer) namespace(c *fleet.Cluster) object {
	return object{"apiVersion": "v1", "kind": "Namespace", "metadata": r.metadata(c, r.namespaceOf(c), "")}
}

// labelValue cuts a name to what a label can hold.
func labelValue(s string) string {
	if len(s) > 63 {
		return s[:63]
	}
	return s
}
