package app

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// snapshotKinds are the kinds of objects that a runtime writes.
var snapshotKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"},
	{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "HostedCluster"},
	{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "NodePool"},
	{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "HostedControlPlane"},
	{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "ControlPlaneComponent"},
	{Group: "certificates.hypershift.openshift.io", Version: "v1alpha1", Kind: "CertificateSigningRequestApproval"},
	{Group: "certificates.hypershift.openshift.io", Version: "v1alpha1", Kind: "CertificateRevocationRequest"},
	{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ConfigMap"},
}

// snapshot returns all objects of the sample on the management cluster by kind and name, in a normalized form.
// Snapshots of two runs are equal if they differ only in names, times, versions and random values. A random value is
// replaced by a number that is equal wherever the value occurs, and a certificate by the number of its signer. So a
// copy of a secret of a previous incarnation in a later one makes a difference.
func (s *sample) snapshot(t *testing.T) map[string]any {
	t.Helper()
	p := &normalizer{sample: s, values: map[string]string{}, uids: map[string]string{}}
	var all []unstructured.Unstructured
	for _, kind := range snapshotKinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		must.Do(t, s.client.List(t.Context(), &list))
		for _, object := range list.Items {
			switch {
			case object.GetNamespace() != "" && object.GetNamespace() != s.namespace && object.GetNamespace() != s.controlPlane(),
				object.GetNamespace() == "" && kind.Kind == "Namespace" && object.GetName() != s.controlPlane(),
				object.GetNamespace() == "" && kind.Kind != "Namespace" && !strings.HasPrefix(object.GetName(), s.name):
				continue
			}
			all = append(all, object)
		}
	}
	name := func(o *unstructured.Unstructured) string {
		return p.text(o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName())
	}
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int { return strings.Compare(name(&a), name(&b)) })
	for i := range all {
		p.uids[string(all[i].GetUID())] = name(&all[i])
		p.collect(all[i].Object)
	}
	objects := map[string]any{}
	for i := range all {
		objects[name(&all[i])] = p.object(&all[i])
	}
	return objects
}

// normalizer makes objects comparable.
type normalizer struct {
	*sample
	// uids holds the names of the objects by UID.
	uids map[string]string
	// values holds the replacements of random values, numbered in the order of their occurrence.
	values map[string]string
	// authorities are the certificates of authorities.
	authorities []*x509.Certificate
}

// named returns the replacement of a random value, which is the same for each occurrence.
func (p *normalizer) named(kind, value string) string {
	if p.values[value] == "" {
		p.values[value] = fmt.Sprintf("%s #%d", kind, len(p.values)+1)
	}
	return p.values[value]
}

// collect collects the authorities among an object's certificates.
func (p *normalizer) collect(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			p.collect(v[key])
		}
	case []any:
		for _, item := range v {
			p.collect(item)
		}
	case string:
		text := []byte(v)
		if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
			text = raw
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.IsCA {
				p.authorities = append(p.authorities, cert)
			}
		}
	}
}

// object returns an object without fields that always differ.
func (p *normalizer) object(o *unstructured.Unstructured) any {
	content := o.DeepCopy().Object
	metadata := content["metadata"].(map[string]any)
	generation := o.GetGeneration()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
		delete(metadata, field)
	}
	managers := map[string]any{}
	for _, m := range o.GetManagedFields() {
		managers[p.text(fmt.Sprintf("%s %s %s", m.Manager, m.Operation, m.Subresource))] = true
	}
	metadata["managers"] = managers
	return p.value(content, generation)
}

func (p *normalizer) value(value any, generation int64) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			item := v[key]
			if key == "observedGeneration" {
				item = map[bool]string{true: "current", false: "outdated"}[item == generation]
			}
			out[p.text(key)] = p.value(item, generation)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = p.value(v[i], generation)
		}
		// The order of conditions and owners has no meaning.
		slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(kindOf(a), kindOf(b)) })
		return out
	case string:
		return p.leaf(v)
	}
	return value
}

func kindOf(value any) string {
	fields, ok := value.(map[string]any)
	if !ok {
		return ""
	}
	kind, _ := fields["type"].(string)
	return kind
}

// leaf normalizes a string, which may be a document, base64, PEM, a time or other text.
func (p *normalizer) leaf(text string) any {
	if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return "TIME"
	}
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var document any
		if json.Unmarshal([]byte(text), &document) == nil {
			return p.value(document, 0)
		}
	}
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && len(text) > 8 && len(text)%4 == 0 {
		if bytes.HasPrefix(raw, []byte("apiVersion:")) {
			var kubeconfig map[string]any
			if yaml.Unmarshal(raw, &kubeconfig) == nil {
				return p.value(kubeconfig, 0)
			}
		}
		if document := p.leaf(string(raw)); document != string(raw) {
			return document
		}
		return p.named("secret", string(raw))
	}
	if block, _ := pem.Decode([]byte(text)); block != nil {
		return p.pem([]byte(text))
	}
	return p.text(text)
}

func (p *normalizer) pem(text []byte) any {
	var blocks []any
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			blocks = append(blocks, p.named(block.Type, string(block.Bytes)))
			continue
		}
		by := "an unknown authority"
		for _, authority := range p.authorities {
			if cert.CheckSignatureFrom(authority) == nil {
				by = p.named("certificate", string(authority.Raw))
			}
		}
		blocks = append(blocks, fmt.Sprintf("%s of %s, signed by %s", p.named("certificate", string(cert.Raw)), p.text(cert.Subject.CommonName), by))
	}
	return blocks
}

var (
	uuidText = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// seconds matches the time at the end of signers' names. suffix matches one generated character of the API server
	// and its clients.
	seconds = regexp.MustCompile(`@[0-9]{10}`)
	suffix  = `[bcdfghjklmnpqrstvwxz2456789]`
	leafOf  = regexp.MustCompile(`(break-glass:)` + suffix + `{8}$`)
	machine = regexp.MustCompile(`(CLUSTER-np1-)` + suffix + `{5}\b`)
)

// text replaces the names and random parts of this run.
func (p *normalizer) text(text string) string {
	text = strings.NewReplacer(contract.ControlPlaneNamespace(p.namespace, p.name), "CONTROL-PLANE", p.namespace, "NAMESPACE", p.name, "CLUSTER").Replace(text)
	text = uuidText.ReplaceAllStringFunc(text, func(id string) string {
		if owner, known := p.uids[id]; known {
			return "uid of " + owner
		}
		return p.named("uuid", id)
	})
	text = leafOf.ReplaceAllString(seconds.ReplaceAllString(text, "@time"), "${1}random")
	return machine.ReplaceAllString(text, "${1}random")
}
