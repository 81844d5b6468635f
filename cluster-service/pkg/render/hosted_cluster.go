package render

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Names of what a HostedCluster refers to, in its namespace.
const (
	pullSecretName  = "pull-secret"
	signingKeyName  = "sa-signing-key"
	servingCertName = "kube-apiserver-tls-cert"
)

// The service's experiments that change the rendering; see the ARM contract.
const (
	experimentSingleReplica = "aro-hcp.experimental.cluster.single-replica"
	experimentCPOImage      = "aro-hcp.experimental.cluster.control-plane-operator-image-override"
)

func (r *Renderer) hostedCluster(c *fleet.Cluster, auth *fleet.ExternalAuth) (object, error) {
	spec, prefix := c.Spec, c.Status.GetBaseDomainPrefix()
	version, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return nil, err
	}
	identities, err := r.managedIdentities(c)
	if err != nil {
		return nil, err
	}
	availability := "HighlyAvailable"
	if isTrue(spec.GetExperiments()[experimentSingleReplica]) {
		availability = "SingleReplica"
	}
	apiHost := r.Region.APIHost(prefix)
	var services []any
	for _, service := range fleet.Services() {
		services = append(services, publish(service, r.Region.ServiceHost(service, prefix)))
	}
	s := object{
		"clusterID":                        ClusterUUID(c).String(),
		"infraID":                          prefix,
		"channel":                          release.Channel(spec.GetVersion().GetChannelGroup(), version.MinorID()),
		"release":                          object{"image": c.Release.Image},
		"issuerURL":                        r.Region.Issuer(c),
		"serviceAccountSigningKey":         object{"name": signingKeyName},
		"kubeAPIServerDNSName":             apiHost,
		"controllerAvailabilityPolicy":     availability,
		"infrastructureAvailabilityPolicy": availability,
		"fips":                             spec.GetFips(),
		"olmCatalogPlacement":              "guest",
		"dns":                              object{"baseDomain": r.Region.ClusterDomain(prefix), "baseDomainPrefix": ""},
		"networking":                       r.networking(spec),
		"etcd": object{"managementType": "Managed", "managed": object{"storage": object{"type": "PersistentVolume",
			"persistentVolume": object{"size": r.Config.Etcd.Size, "storageClassName": r.Config.Etcd.StorageClass}}}},
		"services":   services,
		"pullSecret": object{"name": pullSecretName},
		"sshKey":     object{},
		"platform": object{"type": "Azure", "azure": object{
			"cloud":           r.Config.Azure.Cloud,
			"location":        spec.GetLocation(),
			"subscriptionID":  spec.GetPlatform().GetSubscriptionId(),
			"tenantID":        spec.GetTenantId(),
			"resourceGroup":   spec.GetPlatform().GetManagedResourceGroup(),
			"vnetID":          vnetOf(spec.GetPlatform().GetSubnetId()),
			"subnetID":        spec.GetPlatform().GetSubnetId(),
			"securityGroupID": spec.GetPlatform().GetNetworkSecurityGroupId(),
			"azureAuthenticationConfig": object{
				"azureAuthenticationConfigType": "ManagedIdentities",
				"managedIdentities":             identities,
			},
		}},
	}
	if autoscaling := autoscaling(spec.GetAutoscaling()); len(autoscaling) > 0 {
		s["autoscaling"] = autoscaling
	}
	if sources := r.imageContentSources(spec); len(sources) > 0 {
		s["imageContentSources"] = sources
	}
	configuration := object{}
	if r.Config.ServingCertificates != nil {
		configuration["apiServer"] = object{"servingCerts": object{"namedCertificates": []any{
			object{"names": []any{apiHost}, "servingCertificate": object{"name": servingCertName}}}}}
	}
	if auth != nil {
		configuration["authentication"] = authentication(auth)
	}
	if len(configuration) > 0 {
		s["configuration"] = configuration
	}
	if !spec.GetImageRegistryEnabled() {
		s["capabilities"] = object{"disabled": []any{"ImageRegistry"}}
	}
	if key := spec.GetEtcd().GetKmsKey(); key != nil {
		s["secretEncryption"] = r.secretEncryption(c, key)
	}

	pause(s, c)
	metadata := r.metadata(c, fleet.HostedClusterName(c), r.namespaceOf(c))
	annotations := metadata["annotations"].(object)
	annotations["azure.microsoft.com/hcp-cluster-azure-resource-id"] = c.ResourceID
	annotations["hypershift.openshift.io/cleanup-cloud-resources"] = "true"
	if size := c.Size(); size != "" {
		annotations["hypershift.openshift.io/cluster-size-override"] = size
	}
	if image := spec.GetExperiments()[experimentCPOImage]; image != "" {
		annotations["hypershift.openshift.io/control-plane-operator-image"] = image
	}
	return object{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster", "metadata": metadata, "spec": s}, nil
}

// ClusterUUID is the OpenShift cluster id, derived so that rendering twice gives the same.
func ClusterUUID(c *fleet.Cluster) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("hcpmesh openshift cluster id\n"+c.UID))
}

func publish(service, host string) object {
	return object{"service": service, "servicePublishingStrategy": object{"type": "Route", "route": object{"hostname": host}}}
}

func (r *Renderer) networking(spec *csv1.ClusterSpec) object {
	n := spec.GetNetwork()
	networking := object{
		"networkType":    n.GetNetworkType(),
		"machineNetwork": []any{object{"cidr": n.GetMachineCidr()}},
		"clusterNetwork": []any{object{"cidr": n.GetPodCidr(), "hostPrefix": n.GetHostPrefix()}},
		"serviceNetwork": []any{object{"cidr": n.GetServiceCidr()}},
	}
	// Without a list of the customer's everybody may come, and nothing is set.
	if allowed := spec.GetApi().GetAuthorizedCidrs(); len(allowed) > 0 {
		blocks := anys(allowed)
		for _, own := range r.Config.InternalAPICIDRs {
			blocks = append(blocks, own)
		}
		networking["apiServer"] = object{"allowedCIDRBlocks": blocks}
	}
	return networking
}

func autoscaling(a *csv1.ClusterAutoscaling) object {
	o := object{}
	if a == nil {
		return o
	}
	if n := a.GetMaxNodesTotal(); n > 0 {
		o["maxNodesTotal"] = n
	}
	if a.GetMaxPodGracePeriod() != nil {
		o["maxPodGracePeriod"] = int64(a.GetMaxPodGracePeriod().AsDuration() / time.Second)
	}
	if a.GetMaxNodeProvisionTime() != nil {
		o["maxNodeProvisionTime"] = minutesSeconds(a.GetMaxNodeProvisionTime().AsDuration())
	}
	o["podPriorityThreshold"] = a.GetPodPriorityThreshold()
	return o
}

// minutesSeconds writes a duration as HyperShift's pattern for maxNodeProvisionTime wants it: no fraction, no zero units.
func minutesSeconds(d time.Duration) string {
	d = d.Round(time.Second)
	minutes, seconds := d/time.Minute, d%time.Minute/time.Second
	switch {
	case seconds == 0:
		return fmt.Sprintf("%dm", minutes)
	case minutes == 0:
		return fmt.Sprintf("%ds", seconds)
	}
	return fmt.Sprintf("%dm%ds", minutes, seconds)
}

func (r *Renderer) imageContentSources(spec *csv1.ClusterSpec) []any {
	var sources []any
	for _, s := range r.Config.ImageContentSources {
		sources = append(sources, object{"source": s.Source, "mirrors": anys(s.Mirrors)})
	}
	for _, m := range spec.GetImageDigestMirrors() {
		sources = append(sources, object{"source": m.GetSource(), "mirrors": anys(m.GetMirrors())})
	}
	return sources
}

func (r *Renderer) secretEncryption(c *fleet.Cluster, key *csv1.KmsKey) object {
	access := "Public"
	if key.GetVaultVisibility() == csv1.Visibility_VISIBILITY_PRIVATE {
		access = "Private"
	}
	return object{"type": "kms", "kms": object{"provider": "Azure", "azure": object{
		"activeKey":      object{"keyVaultName": key.GetVaultName(), "keyName": key.GetKeyName(), "keyVersion": key.GetKeyVersion()},
		"kms":            r.controlPlaneIdentity(c, "kms"),
		"keyVaultAccess": access,
	}}}
}

// secrets are what a HostedCluster refers to. They hold secret material: nothing may log them.
func (r *Renderer) secrets(c *fleet.Cluster) ([]object, error) {
	key, err := r.Open(c.UID, c.SigningKey)
	if err != nil {
		return nil, fmt.Errorf("opening the signing key of cluster %s: %w", c.ID(), err)
	}
	secret := func(name, kind, field string, value []byte) object {
		return object{"apiVersion": "v1", "kind": "Secret", "metadata": r.metadata(c, name, r.namespaceOf(c)), "type": kind,
			"data": object{field: base64.StdEncoding.EncodeToString(value)}}
	}
	return []object{
		secret(pullSecretName, "kubernetes.io/dockerconfigjson", ".dockerconfigjson", r.PullSecret),
		secret(signingKeyName, "Opaque", "key", key),
	}, nil
}

// servingCertificate brings the API server's certificate from Key Vault into the secret that the HostedCluster names.
// Which version it is the vault decides: its newest. A renewed one is fetched at once, for the name of the version changes
// what asks for it.
func (r *Renderer) servingCertificate(t *fleet.ClusterAggregate) []object {
	c, certificates := t.Cluster, r.Config.ServingCertificates
	if certificates == nil {
		return nil
	}
	namespace := r.namespaceOf(c)
	sync := object{"serviceAccountName": "default", "secretProviderClassName": servingCertName,
		"secretObject": object{"type": "kubernetes.io/tls", "data": []any{
			object{"sourcePath": "kas-" + c.ID(), "targetKey": "tls.crt"},
			object{"sourcePath": "kas-" + c.ID(), "targetKey": "tls.key"},
		}}}
	if version := t.RenewedCertificate(); version != "" {
		sync["forceSynchronization"] = version
	}
	return []object{
		{"apiVersion": "secrets-store.csi.x-k8s.io/v1", "kind": "SecretProviderClass", "metadata": r.metadata(c, servingCertName, namespace),
			"spec": object{"provider": "azure", "parameters": object{
				"clientID": certificates.ClientID, "keyvaultName": certificates.Vault, "tenantID": certificates.TenantID,
				"objects": fmt.Sprintf("array:\n- |\n  objectName: %s\n  objectType: secret\n", "kas-"+c.ID()),
			}}},
		{"apiVersion": "secret-sync.x-k8s.io/v1alpha1", "kind": "SecretSync", "metadata": r.metadata(c, servingCertName, namespace), "spec": sync},
	}
}

// vnetOf is the virtual network of a subnet's ARM id.
func vnetOf(subnetID string) string {
	i := strings.LastIndex(strings.ToLower(subnetID), "/subnets/")
	if i < 0 {
		return subnetID
	}
	return subnetID[:i]
}

func anys(list []string) []any {
	out := make([]any, 0, len(list))
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

func isTrue(s string) bool { return strings.EqualFold(s, "true") }

// pause has HyperShift leave an object alone for a while. It deletes a paused one all the same.
func pause(spec object, c *fleet.Cluster) {
	if until := c.Paused(); !until.IsZero() {
		spec["pausedUntil"] = until.UTC().Format(time.RFC3339)
	}
}
