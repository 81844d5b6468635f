package clusterservice

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	apiversion "github.com/hcpmesh/hcpmesh/api/version"
)

// customerRequests are the requests that the frontend and the backend send for a customer.
var customerRequests = []proto.Message{
	&clusterservicev1.ApplyClusterRequest{}, &clusterservicev1.ApplyNodePoolRequest{}, &clusterservicev1.ApplyExternalAuthRequest{},
	&clusterservicev1.ApplyBreakGlassCredentialRequest{}, &clusterservicev1.RevokeBreakGlassCredentialsRequest{},
}

// TestPropertyPathsAreComplete checks that the table has every field of a request that the customer can set, and every
// field that only the service sets.
func TestPropertyPathsAreComplete(t *testing.T) {
	for _, message := range customerRequests {
		for _, field := range leaves(message.ProtoReflect().Descriptor(), "") {
			if _, ok := propertyPaths[field]; !ok && !strings.HasPrefix(field, "recovery.") {
				t.Errorf("%s: propertyPaths has no entry for %s", message.ProtoReflect().Descriptor().Name(), field)
			}
		}
	}
}

// TestPropertyPathsExist checks that the newest api-version has every property of the table.
func TestPropertyPathsExist(t *testing.T) {
	api := apiversion.Newest()
	find := []func(string) (string, bool){
		shape.Bind[hub.Cluster, hub.ClusterStatus](api.Cluster).Path,
		shape.Bind[hub.NodePool, hub.NodePoolStatus](api.NodePool).Path,
		shape.Bind[hub.ExternalAuth, hub.ExternalAuthStatus](api.ExternalAuth).Path,
	}
	for field, path := range propertyPaths {
		switch path {
		case "", "id", "name", "certificateSigningRequest":
			continue
		}
		if strings.Contains(path, "_") {
			t.Errorf("%s: %s is not an ARM property", field, path)
		}
		found := false
		for _, resolve := range find {
			_, ok := resolve(path)
			found = found || ok
		}
		if !found {
			t.Errorf("%s: no resource type has the property %s", field, path)
		}
	}
}

func TestPropertyPath(t *testing.T) {
	for field, want := range map[string]string{
		"spec.dns.base_domain_prefix":                         "properties.dns.baseDomainPrefix",
		"spec.api.authorized_cidrs[7]":                        "properties.api.authorizedCidrs[7]",
		"spec.image_digest_mirrors[1].mirrors[2]":             "properties.imageDigestMirrors[1].mirrors[2]",
		"spec.platform.control_plane_operators[disk-csi]":     "properties.platform.operatorsAuthentication.userAssignedIdentities.controlPlaneOperators[disk-csi]",
		"properties.etcd.dataEncryption.keyManagementMode":    "properties.etcd.dataEncryption.keyManagementMode",
		"properties.clients[0].type":                          "properties.clients[0].type",
		"properties.platform_internal":                        "",
		"spec.tenant_id":                                      "",
		"spec.unknown_field":                                  "",
		"":                                                    "",
		"spec":                                                "",
		"spec.labels[node-role.kubernetes.io/infra]":          "properties.labels",
		"identity.userAssignedIdentities[/subscriptions/x/y]": "identity.userAssignedIdentities[/subscriptions/x/y]",
	} {
		if got, ok := PropertyPath(field); got != want || ok != (want != "") {
			t.Errorf("PropertyPath(%q) = %q, %v, want %q", field, got, ok, want)
		}
	}
}

// leaves returns the paths of the fields of a message that are no messages, with [] for elements of lists and maps.
func leaves(message protoreflect.MessageDescriptor, prefix string) []string {
	var paths []string
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		path := prefix + string(field.Name())
		value := field
		if field.IsMap() {
			value = field.MapValue()
		}
		if field.IsList() || field.IsMap() {
			if value.Kind() != protoreflect.MessageKind {
				paths = append(paths, path, path+"[]")
				continue
			}
			path += "[]"
		}
		if value.Kind() == protoreflect.MessageKind && !strings.HasPrefix(string(value.Message().FullName()), "google.protobuf.") {
			paths = append(paths, leaves(value.Message(), path+".")...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}
