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
)

// kindsOfWorld are what a runtime writes.
var kindsOfWorld = []schema.GroupVersionKind{
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

// world is everything on the management cluster that belongs to the sample, by kind and name, in a form in which the worlds of
// two plays are equal if they differ only in what must differ: names, times, versions, and what is random. Of what is random it
// says where else the same is, and of a certificate whose key signed it: so that a copy of an earlier life's secret beside one
// of a later life is another world.
func (s *sample) world(t *testing.T) map[string]any {
	t.Helper()
	p := &plain{sample: s, values: map[string]string{}, uids: map[string]string{}}
	var all []unstructured.Unstructured
	for _, kind := range kindsOfWorld {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		if err := s.client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
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
	world := map[string]any{}
	for i := range all {
		world[name(&all[i])] = p.object(&all[i])
	}
	return world
}

// plain makes objects comparable.
type plain struct {
	*sample
	// uids are the objects' names.
	uids map[string]string
	// values are the names that random values got, in the order in which they were found.
	values map[string]string
	// authorities are the certificates that sign others.
	authorities []*x509.Certificate
}

// named is the name of a random value, the same wherever it is found again.
func (p *plain) named(kind, value string) string {
	if p.values[value] == "" {
		p.values[value] = fmt.Sprintf("%s #%d", kind, len(p.values)+1)
	}
	return p.values[value]
}

// collect finds the authorities among an object's certificates.
func (p *plain) collect(value any) {
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

// object is one without what differs by nature.
func (p *plain) object(o *unstructured.Unstructured) any {
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

func (p *plain) value(value any, generation int64) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			item := v[key]
			if key == "observedGeneration" {
				item = map[bool]string{true: "the newest", false: "an older one"}[item == generation]
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

// leaf is a string: a document, base64, PEM, a time or just text.
func (p *plain) leaf(text string) any {
	if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return "a time"
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

func (p *plain) pem(text []byte) any {
	var blocks []any
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			blocks = append(blocks, p.named(block.Type, string(block.Bytes)))
			continue
		}
		by := "nobody that is known"
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
	// seconds are what the names of signers end with; suffix is what the API server and its clients make up.
	seconds = regexp.MustCompile(`@[0-9]{10}`)
	suffix  = `[bcdfghjklmnpqrstvwxz2456789]`
	leafOf  = regexp.MustCompile(`(break-glass:)` + suffix + `{8}$`)
	machine = regexp.MustCompile(`(CLUSTER-np1-)` + suffix + `{5}\b`)
)

// text is one without names and numbers of this play.
func (p *plain) text(text string) string {
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
