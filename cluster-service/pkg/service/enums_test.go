package service

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// withUnknownEnums returns one message for each enumeration field of a type, at any depth, in which that field has an unknown
// value, by the path of the field.
func withUnknownEnums(message protoreflect.MessageType, ancestors ...protoreflect.FullName) map[string]protoreflect.Message {
	found := map[string]protoreflect.Message{}
	descriptor := message.Descriptor()
	if slices.Contains(ancestors, descriptor.FullName()) {
		return found
	}
	ancestors = append(slices.Clone(ancestors), descriptor.FullName())
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		if field.IsMap() {
			continue // no request has an enumeration in a map
		}
		path := string(field.Name())
		if field.IsList() {
			path += "[0]"
		}
		set := func(m protoreflect.Message, value protoreflect.Value) protoreflect.Message {
			if field.IsList() {
				m.Mutable(field).List().Append(value)
			} else {
				m.Set(field, value)
			}
			return m
		}
		switch field.Kind() {
		case protoreflect.EnumKind:
			found[path] = set(message.New(), protoreflect.ValueOfEnum(99))
		case protoreflect.MessageKind:
			for inner, value := range withUnknownEnums(dynamicpb.NewMessageType(field.Message()), ancestors...) {
				found[path+"."+inner] = set(message.New(), protoreflect.ValueOfMessage(value))
			}
		}
	}
	return found
}

// TestUnknownEnumsAreRejected sets each enumeration field of each request to a value that is not defined. The error must name
// the field and the supported values, and the handler must not be called.
func TestUnknownEnumsAreRejected(t *testing.T) {
	methods := csv1.File_hcpmesh_clusterservice_v1_service_proto.Services().ByName("ClusterService").Methods()
	fields := 0
	for i := range methods.Len() {
		request := dynamicpb.NewMessageType(methods.Get(i).Input())
		for path, message := range withUnknownEnums(request) {
			fields++
			_, err := RejectInvalidValues(t.Context(), message.Interface(), nil, func(context.Context, any) (any, error) {
				t.Errorf("%s: a request with an unknown %s reached the handler", methods.Get(i).Name(), path)
				return nil, nil
			})
			known := apierror.FromGRPC(err)
			if known == nil || !strings.Contains(known.Error(), path) || !strings.Contains(known.Error(), "supported values: ") {
				t.Errorf("%s: unknown %s: %v, want an error with the field and the supported values", methods.Get(i).Name(), path, err)
			}
		}
	}
	if fields < 10 {
		t.Errorf("%d enumeration fields were found, want those of all requests", fields)
	}
	known := &csv1.StartUpgradeRequest{NodePools: csv1.NodePoolFollow_NODE_POOL_FOLLOW_ALL}
	if got := invalidValues(known.ProtoReflect(), ""); len(got) > 0 {
		t.Errorf("known values: %v, want no violation", got)
	}
}

// TestTextWithZeroByteIsRejected sends a zero byte in a text, in a list, in a nested message, and in the keys and values of a map.
func TestTextWithZeroByteIsRejected(t *testing.T) {
	const zero = "a\x00b"
	for field, request := range map[string]proto.Message{
		"resource_id_prefix":                   &csv1.ListClustersRequest{ResourceIdPrefix: zero},
		"uids[1]":                              &csv1.ListClustersRequest{Uids: []string{"a", zero}},
		"spec.platform.managed_resource_group": &csv1.ApplyClusterRequest{Spec: &csv1.ClusterSpec{Platform: &csv1.Platform{ManagedResourceGroup: zero}}},
		"spec.experiments":                     &csv1.ApplyClusterRequest{Spec: &csv1.ClusterSpec{Experiments: map[string]string{zero: "a"}}},
		"spec.experiments[a]":                  &csv1.ApplyClusterRequest{Spec: &csv1.ClusterSpec{Experiments: map[string]string{"a": zero}}},
	} {
		_, err := RejectInvalidValues(t.Context(), request, nil, func(context.Context, any) (any, error) {
			t.Errorf("%s: the request reached the handler", field)
			return nil, nil
		})
		if known := apierror.As(apierror.FromGRPC(err)); len(known.Violations) != 1 || known.Violations[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestEnumsAreTranslatedBothWays checks that each value of an internal enumeration has a value of the API, and the reverse.
func TestEnumsAreTranslatedBothWays(t *testing.T) {
	for _, strategy := range placement.Strategies() {
		if got := policyOf(policyProto(placement.Policy{Strategy: strategy})).Strategy; got != strategy {
			t.Errorf("placement strategy %q becomes %q", strategy, got)
		}
	}
	if got, want := len(placement.Strategies()), len(csv1.PlacementStrategy_name)-1; got != want {
		t.Errorf("%d placement strategies, the API has %d", got, want)
	}
	for _, state := range placement.States() {
		if shardState(state) == csv1.ProvisionShardState_PROVISION_SHARD_STATE_UNSPECIFIED {
			t.Errorf("shard state %q has no value in the API", state)
		}
	}
	for kind := range csv1.WorkKind_name {
		if known := slices.Contains(fleet.WorkKinds(), fleet.WorkKind(kind)); known != (kind != 0) {
			t.Errorf("work kind %s of the API: known to the fleet: %t", csv1.WorkKind(kind), known)
		}
	}
	if got, want := len(fleet.WorkKinds()), len(csv1.WorkKind_name)-1; got != want {
		t.Errorf("%d work kinds, the API has %d", got, want)
	}
}
