package installation

import (
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// Target returns the configuration of a region or a stamp with the digests of built images, for values of its charts. root is the root
// of the repository. Managed identities do not exist outside of Azure; ClientID and ObjectID return the IDs that stand for theirs.
func Target(root, name string, images *imagelist.List) (values.Target, error) {
	parsed, err := layer.ParseTarget(name)
	if err != nil {
		return values.Target{}, err
	}
	configuration, err := deployment.Open(filepath.Join(root, "config"))
	if err != nil {
		return values.Target{}, err
	}
	rendered, err := configuration.Render(parsed)
	if err != nil {
		return values.Target{}, err
	}
	digests := map[string]string{}
	for _, image := range images.Images {
		digests[image.Repository] = image.Digest
	}
	target := values.Target{Name: name, Schema: configuration.Schema, ClientIDs: map[string]string{}, ObjectIDs: map[string]string{}}
	for _, identity := range values.Identities(rendered) {
		target.ClientIDs[identity], target.ObjectIDs[identity] = ClientID(identity), ObjectID(identity)
	}
	target.Configuration = withDigests(rendered, "", digests)
	return target, nil
}

// ClientID returns the client ID that stands for a managed identity. It follows from the name.
func ClientID(identity string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("managed identity of hcpmesh: "+identity)).String()
}

// ObjectID returns the object ID that stands for the principal of a managed identity. It follows from the name.
func ObjectID(identity string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("principal of hcpmesh: "+identity)).String()
}

// withDigests returns a copy of a node with the digests of the images in it, by repository. An image that was not built has no digest.
func withDigests(n *document.Node, key string, digests map[string]string) *document.Node {
	made := *n
	made.Fields, made.Items = map[string]*document.Node{}, nil
	for name, field := range n.Fields {
		made.Fields[name] = withDigests(field, name, digests)
	}
	for _, item := range n.Items {
		made.Items = append(made.Items, withDigests(item, "", digests))
	}
	if repository := n.Get("repository"); key == "image" && repository != nil {
		if digest := digests[fmt.Sprint(repository.Value)]; digest != "" {
			made.Fields["digest"] = &document.Node{Kind: document.Scalar, Value: digest, Origin: n.Origin}
		}
	}
	return &made
}
