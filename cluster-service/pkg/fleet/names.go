package fleet

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Source is the name under which Cluster Service publishes to Maestro.
const Source = "cluster-service"

// lowerHex32 is base32hex in lower case: digits and a to v, the alphabet of cluster ids.
var lowerHex32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// ClusterID is the 32-character id of a cluster. It follows from the uid, so that a repeated step finds its own work.
func ClusterID(uid string) string {
	sum := sha256.Sum256([]byte("hcpmesh cluster id\n" + strings.ToLower(uid)))
	return lowerHex32.EncodeToString(sum[:20])
}

// prefixLength is the longest base domain prefix, and so the longest name of a HostedCluster: with it the name of the
// control plane's namespace fills the 63 characters of a namespace name exactly.
const prefixLength = 15

// Prefix is a base domain prefix for a cluster that named none. Attempts differ, should one be taken.
func Prefix(uid string, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "hcpmesh prefix %d\n%s", attempt, strings.ToLower(uid)))
	text := lowerHex32.EncodeToString(sum[:])
	// A DNS label of this kind begins with a letter.
	return string('a'+sum[31]%26) + text[:prefixLength-1]
}

// Namespace is where a cluster's HostedCluster stands on the management cluster.
func Namespace(environment, clusterID string) string { return "ocm-" + environment + "-" + clusterID }

// HostedClusterName is the HostedCluster's name: the prefix.
func HostedClusterName(c *Cluster) string { return c.Status.GetBaseDomainPrefix() }

// NodePoolName is the NodePool's name on the management cluster.
func NodePoolName(c *Cluster, p *NodePool) string {
	return HostedClusterName(c) + "-" + strings.ToLower(p.Spec.GetName())
}

// WorkName names a work as the fleet's operators know it; name is that of the node pool, or the uid of the credential,
// revocation or upgrade.
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

// WorkID is the Maestro resource id of a work, as the published grpcsource client derives it: UUIDv5 of source, resource,
// consumer and name. The incarnation is part of a node pool's, so that a pool deleted and created again under its name is
// another work.
func WorkID(consumer, name, incarnation string) string {
	id := fmt.Sprintf("%s-%s-%s-%s", Source, "manifestworks.work.open-cluster-management.io", consumer, name)
	if incarnation != "" {
		id += "-" + incarnation
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(id)).String()
}

// CredentialName is the name of a credential's request and its approval on the management cluster. Requests are not in a
// namespace, so that the uid keeps those of different clusters apart.
func CredentialName(c *Credential) string {
	if c.Spec.GetClass() == csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE {
		return "sre-breakglass-" + c.UID
	}
	return "system-admin-credential-" + c.UID
}

// RevocationName is the name of a revocation's request.
func RevocationName(v *Revocation) string { return "system-admin-credential-revocation-" + v.UID }

// ControlPlaneNamespace is where HyperShift runs a cluster's control plane.
func ControlPlaneNamespace(environment string, c *Cluster) string {
	return Namespace(environment, c.ID()) + "-" + strings.ReplaceAll(HostedClusterName(c), ".", "-")
}
