package fleet

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Source is the name of Cluster Service as a source of Maestro bundles.
const Source = "cluster-service"

// lowerHex32 is base32hex in lower case with the digits and a to v, the alphabet of cluster IDs.
var lowerHex32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// ClusterID returns the 32-character ID of a cluster. It is derived from the UID, so that a repeated step finds its own
// objects.
func ClusterID(uid string) string {
	sum := sha256.Sum256([]byte("hcpmesh cluster id\n" + strings.ToLower(uid)))
	return lowerHex32.EncodeToString(sum[:20])
}

// prefixLength is the longest base domain prefix, and so the longest name of a HostedCluster. With it, the name of the
// control plane's namespace has exactly the allowed 63 characters.
const prefixLength = 15

// Prefix returns a generated base domain prefix. Different attempts return different prefixes.
func Prefix(uid string, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "hcpmesh prefix %d\n%s", attempt, strings.ToLower(uid)))
	text := lowerHex32.EncodeToString(sum[:])
	// A DNS label must begin with a letter here.
	return string('a'+sum[31]%26) + text[:prefixLength-1]
}

// Namespace returns the namespace of a cluster's HostedCluster on the management cluster.
func Namespace(environment, clusterID string) string { return "ocm-" + environment + "-" + clusterID }

// HostedClusterName returns the name of the HostedCluster, which is the base domain prefix.
func HostedClusterName(c *Cluster) string { return c.Status.GetBaseDomainPrefix() }

// NodePoolName returns the name of the NodePool on the management cluster.
func NodePoolName(c *Cluster, p *NodePool) string {
	return HostedClusterName(c) + "-" + strings.ToLower(p.Spec.GetName())
}

// WorkName returns the name of a work. name is the name of the node pool, or the UID of the credential, revocation or
// upgrade.
func WorkName(kind WorkKind, clusterID, name string) string {
	switch kind {
	case Namespaces:
		return clusterID + "-00-namespaces"
	case NodePoolWork:
		return clusterID + "-" + strings.ToLower(name)
	case CredentialWork:
		return clusterID + "-credential-" + name
	case RevocationWork:
		return clusterID + "-revocation-" + name
	case RolloutWork:
		return clusterID + "-rollout-" + name
	default:
		return clusterID
	}
}

// WorkID returns the ID of a work's Maestro resource bundle as the published grpcsource client derives it: the UUIDv5 of
// source, resource, consumer and name. For a node pool the incarnation is part of it, so that a recreated pool of the same
// name has another work.
func WorkID(consumer, name, incarnation string) string {
	id := fmt.Sprintf("%s-%s-%s-%s", Source, "manifestworks.work.open-cluster-management.io", consumer, name)
	if incarnation != "" {
		id += "-" + incarnation
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(id)).String()
}

// CredentialName returns the name of a credential's request and approval on the management cluster. Requests are not
// namespaced, so the UID separates those of different clusters. It returns an error for a class that this release does not
// support.
func CredentialName(c *Credential) (string, error) {
	switch class := c.Spec.GetClass(); class {
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER:
		return "system-admin-credential-" + c.UID, nil
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE:
		return "sre-breakglass-" + c.UID, nil
	default:
		return "", unsupportedClass(class)
	}
}

// RevocationName returns the name of a revocation's request.
func RevocationName(v *Revocation) string { return "system-admin-credential-revocation-" + v.UID }

// ControlPlaneNamespace returns the namespace in which HyperShift runs a cluster's control plane.
func ControlPlaneNamespace(environment string, c *Cluster) string {
	return Namespace(environment, c.ID()) + "-" + strings.ReplaceAll(HostedClusterName(c), ".", "-")
}
