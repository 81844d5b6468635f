// Package values computes the values of the charts from the rendered configuration of a region or stamp, so that nobody writes values
// by hand. A program's flags come from the keys that have them in x-configures, its network from the authorization table.
package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// The providers of secrets.
const (
	// CSI reads secrets from Key Vaults with the secrets store driver.
	CSI = "csi"
	// Secret expects a Secret for each volume, which somebody else creates.
	Secret = "secret"
)

// The platforms of clusters, which the keys serviceCluster.platform and managementCluster.platform select.
const (
	aks            = "aks"
	kubernetesOnly = "kubernetes"
)

// AuthoritiesName is the name of the ConfigMap with further certificate authorities that programs trust, in each namespace of a cluster
// without Azure's add-ons. Each of its keys is a PEM file.
const AuthoritiesName = "hcpmesh-authorities"

// egressFlag is the flag of monitor with the addresses of its cluster. A key of the configuration replaces those of the infrastructure.
const egressFlag = "egress-addresses"

// Target is a region or a stamp, with everything from which values are computed.
type Target struct {
	// Name is the name of the target, for example public/prod/uksouth.
	Name string
	// Schema is the schema of the configuration, and Configuration the rendered document.
	Schema        *schema.Schema
	Configuration *document.Node
	// ClientIDs are the client IDs of the managed identities, by name. They are outputs of the infrastructure.
	ClientIDs map[string]string
	// ObjectIDs are the object IDs of the principals of managed identities, by name. They are outputs of the infrastructure, too.
	ObjectIDs map[string]string
	// EgressAddresses are the public addresses from which servers see the connections of the service cluster. They are an output of the
	// infrastructure, too.
	EgressAddresses []string
	// Secrets is the provider of secrets: CSI or Secret. Empty means that of the cluster's platform.
	Secrets string
}

// Values are the values of the chart of a service.
type Values struct {
	Image     Image             `json:"image"`
	Replicas  int64             `json:"replicas"`
	Resources map[string]int64  `json:"resources"`
	Identity  Identity          `json:"identity"`
	Flags     map[string]string `json:"flags"`
	Files     map[string]string `json:"files"`
	Secrets   Secrets           `json:"secrets"`
	Network   Network           `json:"network"`
	Metrics   Metrics           `json:"metrics"`
	// ReleaseRepositories are the repositories of the release images of the region's clusters, for Maestro's agent. Its policy permits no others.
	ReleaseRepositories []string `json:"releaseRepositories,omitempty"`
	// PrivateLink is nil for programs without a private link service.
	PrivateLink *PrivateLink `json:"privateLink,omitempty"`
	// Audit and Migration are nil for programs without audit records or without a database.
	Audit     *Audit       `json:"audit,omitempty"`
	Migration *DatabaseJob `json:"migration,omitempty"`
	// Provision is nil, too, if the server of the database does not authenticate identities of Azure.
	Provision *DatabaseJob `json:"provision,omitempty"`
}

// Audit is the disk with the queue of audit records.
type Audit struct {
	StorageClass string `json:"storageClass"`
}

// DatabaseJob is a command of the program that prepares its database, with the identity and the flags of the job.
type DatabaseJob struct {
	Identity Identity          `json:"identity"`
	Flags    map[string]string `json:"flags"`
}

// Image is the image of a program.
type Image struct {
	Registry   string `json:"registry"`
	Repository string `json:"repository"`
	Digest     string `json:"digest"`
}

// Identity is how a program authenticates: with a managed identity to Azure, and with a certificate to other programs.
type Identity struct {
	// ClientID and TenantID are empty for a program that calls no service of Azure.
	ClientID string `json:"clientId,omitempty"`
	TenantID string `json:"tenantId,omitempty"`
	// Authority is the URL of Entra ID, where the program exchanges the token of its service account. It is empty on AKS, where a webhook
	// configures pods.
	Authority string `json:"authority,omitempty"`
	// Secret is the name of the Secret with tls.crt, tls.key and ca.crt. It is empty for a program without such an identity.
	Secret string `json:"secret,omitempty"`
	// Sidecar replaces Secret if a sidecar of Istio authenticates connections between programs. It is nil otherwise.
	Sidecar *Sidecar `json:"sidecar,omitempty"`
}

// Secrets are the secret files of a program.
type Secrets struct {
	Provider string   `json:"provider"`
	Volumes  []Volume `json:"volumes"`
	// Authorities is the name of a ConfigMap with certificate authorities that the program trusts besides those of its image.
	Authorities string `json:"authorities,omitempty"`
}

// Volume is a folder of secret files, mounted at /secrets/NAME.
type Volume struct {
	Name  string `json:"name"`
	Vault string `json:"vault"`
	Files []File `json:"files"`
}

// File is a secret in a vault and the name of its file.
type File struct {
	Path   string `json:"path"`
	Secret string `json:"secret"`
}

// Of returns the values of a workload's chart. An error names the key of the configuration, or the managed identity, that is missing.
func Of(w workload.Workload, t Target) (*Values, error) {
	v, err := compute(w, t)
	if err != nil {
		return nil, fmt.Errorf("%s: values of the chart %s: %w", t.Name, w.Peer, err)
	}
	return v, nil
}

func compute(w workload.Workload, t Target) (*Values, error) {
	c := &computation{workload: w, target: t}
	v := &Values{
		Image:     c.image(),
		Replicas:  c.replicas(),
		Resources: c.resources(c.path("resources")...),
		Secrets:   c.secrets(),
		Metrics:   c.metrics(),
	}
	if !w.WithoutAzure {
		v.Identity = c.identity("managedIdentity")
	}
	if w.Audit {
		v.Audit = &Audit{StorageClass: c.text("audit", "queueStorageClass")}
	}
	if w.Migration {
		v.Migration, v.Provision = c.migration(), c.provision()
	}
	authenticates := !w.Management && !w.PrivateLink
	sidecars := authenticates && c.sidecars()
	if authenticates && !sidecars {
		v.Identity.Secret = string(w.Peer) + "-identity"
	}
	c.flags()
	if w.Peer == mesh.Monitor && c.set[egressFlag] == "" && len(t.EgressAddresses) > 0 {
		c.set[egressFlag] = strings.Join(t.EgressAddresses, ",")
	}
	switch w.Peer {
	case mesh.MaestroServer:
		c.consumers()
	case mesh.GatewayAccess:
		c.tunnelAgents()
	case mesh.MaestroAgent:
		v.ReleaseRepositories = c.releaseRepositories()
	}
	v.Flags, v.Files = c.set, c.files()
	v.Secrets.Volumes = c.volumes()
	v.Network = c.network(v, mesh.Rules())
	if w.PrivateLink {
		v.PrivateLink = c.privateLink()
	}
	if sidecars {
		v.Identity.Sidecar = c.sidecar(&v.Network)
	}
	if c.err != nil {
		return nil, c.err
	}
	return v, nil
}

// computation collects what the values of one workload need. err is its first error.
type computation struct {
	workload workload.Workload
	target   Target
	set      map[string]string
	mounts   map[string]*Volume
	err      error
}

func (c *computation) fail(format string, values ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, values...)
	}
}

// scalar returns the value of a required key, or nil.
func (c *computation) scalar(path []string) any {
	n := c.target.Configuration.Get(path...)
	if n == nil || n.Kind != document.Scalar || n.Value == "" {
		c.fail("%s: is required for a deployment, and no layer sets it", strings.Join(path, "."))
		return nil
	}
	return n.Value
}

func (c *computation) text(path ...string) string {
	text, _ := c.scalar(path).(string)
	return text
}

func (c *computation) number(path ...string) int64 {
	number, _ := c.scalar(path).(int64)
	return number
}

// path returns the path of a key in the program's part of the configuration.
func (c *computation) path(path ...string) []string {
	return append(slices.Clone(c.workload.Key), path...)
}

// own returns the text of a key in the program's part of the configuration.
func (c *computation) own(path ...string) string { return c.text(c.path(path...)...) }

// image returns the image of the program.
func (c *computation) image() Image {
	return Image{Registry: c.own("image", "registry"), Repository: c.own("image", "repository"), Digest: c.own("image", "digest")}
}

// resources returns the requests and the limit in a part of the configuration. The path is absolute.
func (c *computation) resources(path ...string) map[string]int64 {
	resources := map[string]int64{}
	for _, name := range []string{"cpuMillicores", "memoryMiB", "memoryLimitMiB"} {
		resources[name] = c.number(append(slices.Clone(path), name)...)
	}
	return resources
}

// identity returns the managed identity with the name in a key.
func (c *computation) identity(key string) Identity {
	identity := Identity{ClientID: c.clientID(c.own(key)), TenantID: c.text("tenantId")}
	if c.platform() == kubernetesOnly {
		identity.Authority = c.text("endpoints", "authority") + "/"
	}
	return identity
}

// clientID returns the client ID of a managed identity.
func (c *computation) clientID(name string) string {
	id := c.target.ClientIDs[name]
	if id == "" {
		c.fail("the client ID of the managed identity %s is missing", name)
	}
	return id
}

// platform returns the platform of the program's cluster.
func (c *computation) platform() string { return c.text(c.cluster(), "platform") }

// secrets returns how the program gets its secret files, without the files.
func (c *computation) secrets() Secrets {
	s := Secrets{Provider: c.target.Secrets}
	if c.platform() == kubernetesOnly && !c.workload.WithoutAzure {
		s.Authorities = AuthoritiesName
	}
	switch {
	case s.Provider != "":
	case c.platform() == aks:
		s.Provider = CSI
	default:
		s.Provider = Secret
	}
	return s
}

// replicas returns the number of pods. An agent is alone: two would compete for the same session of the broker.
func (c *computation) replicas() int64 {
	if c.workload.Management {
		return 1
	}
	return c.number(c.path("replicas")...)
}

// flags computes the flags of the keys that configure the program. Secrets and certificates are files of volumes.
func (c *computation) flags() {
	c.set, c.mounts = map[string]string{}, map[string]*Volume{}
	c.visitFlags(func(path []string, flag string, n *document.Node) {
		if c.set[flag] == "" || n.Kind == document.Map { // the keys of a reference follow the reference itself
			c.set[flag] = c.flag(path, flag, n)
		}
	})
}

// visitFlags calls visit with each key that sets a flag of the program, and with the value of the key.
func (c *computation) visitFlags(visit func(path []string, flag string, n *document.Node)) {
	c.target.Schema.Walk(func(path []string, p *schema.Property) {
		n := c.target.Configuration.Get(path...)
		if n == nil {
			return
		}
		for _, use := range p.Configures {
			if program, flag, isFlag := strings.Cut(use, " --"); isFlag && program == c.workload.Program() {
				visit(path, flag, n)
			}
		}
	})
}

func (c *computation) flag(path []string, flag string, n *document.Node) string {
	switch n.Kind {
	case document.List:
		var items []string
		for _, item := range n.Items {
			items = append(items, fmt.Sprint(item.Value))
		}
		return strings.Join(items, ",")
	case document.Map:
		if c.target.Schema.Lookup(path...).Image() {
			image := func(key string) string { return c.text(append(path[:len(path):len(path)], key)...) }
			return image("registry") + "/" + image("repository") + "@" + image("digest")
		}
		return c.secret(path, flag, n)
	}
	return fmt.Sprint(n.Value)
}

// secret returns the path of the file or folder that a reference to a secret or a certificate becomes.
func (c *computation) secret(path []string, flag string, n *document.Node) string {
	key := strings.Join(path, ".")
	if c.target.Schema.Lookup(path...).Secret() {
		if volume, isFolder := strings.CutSuffix(flag, "-dir"); isFolder {
			// The folder has a file for each program with such a key.
			of := slices.IndexFunc(workload.All(), func(w workload.Workload) bool { return slices.Equal(w.Key, path[:len(path)-1]) })
			if of < 0 {
				c.fail("%s: --%s accepts only keys of programs", key, flag)
				return ""
			}
			c.mountSecret(volume, string(workload.All()[of].Peer)+".pem", path...)
			return "/secrets/" + volume
		}
		file := strings.TrimSuffix(flag, "-file")
		c.mountSecret("keys", file, path...)
		return "/secrets/keys/" + file
	}
	certificate := n.Get("name")
	if certificate == nil {
		c.fail("%s: --%s accepts a single value, a list, a secret or a certificate", key, flag)
		return ""
	}
	// A certificate of Key Vault is a secret, too: PEM with the certificate and its key. A reader of either part ignores the other.
	name := fmt.Sprint(certificate.Value)
	volume := strings.TrimSuffix(flag, "-dir")
	vault := c.ownVault()
	c.mount(volume, vault, File{"tls.crt", name})
	c.mount(volume, vault, File{"tls.key", name})
	return "/secrets/" + volume
}

// vault returns the name of the vault of a reference to a secret.
func (c *computation) vault(key string, n *document.Node) string {
	switch vault := n.Get("vault"); {
	case vault == nil:
		c.fail("%s.vault: is required", key)
	case vault.Value == "service":
		return c.text("keyVaults", "service")
	case vault.Value == "managementCluster":
		return c.text("managementCluster", "keyVault")
	default:
		c.fail("%s.vault: %v is not a vault", key, vault.Value)
	}
	return ""
}

// ownVault returns the vault with the certificates of the program's cluster.
func (c *computation) ownVault() string {
	if c.workload.Management {
		return c.text("managementCluster", "keyVault")
	}
	return c.text("keyVaults", "service")
}

// mountSecret adds the secret of a reference to a volume. The path of the reference is absolute.
func (c *computation) mountSecret(volume, file string, path ...string) {
	key, reference := strings.Join(path, "."), c.target.Configuration.Get(path...)
	if reference == nil {
		c.fail("%s: is required, and no layer sets it", key)
		return
	}
	c.mount(volume, c.vault(key, reference), File{file, c.text(append(path[:len(path):len(path)], "secret")...)})
}

// mount adds a file to a volume. The files of a volume come from one vault.
func (c *computation) mount(volume, vault string, file File) {
	v := c.mounts[volume]
	if v == nil {
		v = &Volume{Name: volume, Vault: vault}
		c.mounts[volume] = v
	}
	if v.Vault != vault {
		c.fail("the secrets of the volume %s are in two vaults, %s and %s", volume, v.Vault, vault)
	}
	v.Files = append(v.Files, file)
}

func (c *computation) volumes() []Volume {
	volumes := []Volume{}
	for _, name := range slices.Sorted(maps.Keys(c.mounts)) {
		v := *c.mounts[name]
		slices.SortFunc(v.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
		volumes = append(volumes, v)
	}
	return volumes
}
