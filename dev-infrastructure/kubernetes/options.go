package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes/machine"
)

// Options are the options of a cluster.
type Options struct {
	// Dir is the folder with all data: the authority, etcd, images, volumes and logs. A cluster that is started with the folder of an
	// earlier one continues it. Its file system has to support overlayfs, which another overlayfs does not.
	Dir string
	// ThirdParty is the folder with the programs that tooling/third-party/build.sh builds.
	ThirdParty string
	// NodeProgram and PauseProgram are the programs of cmd/kubernetes-node and cmd/pause.
	NodeProgram, PauseProgram string
	// Nodes are the nodes: from 1 to 100.
	Nodes []Node
	// Hosts are names outside of the cluster, at most 100, for example of Azure's services. *.ZONE stands for all names in a zone. The DNS of
	// the cluster resolves each of them to an address of its own, on which ListenHost and ForwardHost serve it.
	Hosts []string
	// StorageClass is the name of a StorageClass whose volumes are folders of nodes; empty means that there is none.
	StorageClass string
}

// Node is a node of a cluster.
type Node struct {
	// Name is a DNS label of at most 12 characters.
	Name string
	// Labels are labels of the Node object that a kubelet may set, for example topology.kubernetes.io/zone.
	Labels map[string]string
}

// maxNodes and maxHosts are bounded by their addresses.
const maxNodes, maxHosts = 100, 100

// hostName are the names that the DNS of the cluster accepts as names of hosts.
var hostName = regexp.MustCompile(`^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`)

// nodeName are the names that are possible as part of the name of a network interface.
var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$`)

// className are the names of StorageClasses that are accepted.
var className = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// thirdParty are the programs in Options.ThirdParty that a cluster runs.
var thirdParty = slices.Concat(controlPlanePrograms, nodePrograms, cniPlugins, []string{corednsProgram})

// installed are the programs that a package of the Linux distribution provides, with the Debian package.
var installed = map[string]string{"runc": "runc", "nft": "nftables", "mount": "mount"}

// Check returns an error that names what this machine lacks to run a cluster, for example root, namespaces or a program.
func (o Options) Check() error {
	if err := machine.Check(); err != nil {
		return fmt.Errorf("nodes of Kubernetes cannot run on this machine: %w", err)
	}
	var missing []string
	for _, name := range thirdParty {
		if _, err := os.Stat(filepath.Join(o.ThirdParty, name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s is not in %s: run make nodes", strings.Join(missing, ", "), o.ThirdParty)
	}
	for name, debianPackage := range installed {
		if _, err := lookPath(name); err != nil {
			return fmt.Errorf("%s is not installed: run make nodes (Debian: apt-get install %s)", name, debianPackage)
		}
	}
	return nil
}

// lookPath returns the path of a program in the folders that nodes have, too.
func lookPath(name string) (string, error) {
	for _, dir := range strings.Split(systemPath, ":") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// validate returns an error for options with which no cluster can be started.
func (o Options) validate() error {
	var problems []error
	if len(o.Nodes) < 1 || len(o.Nodes) > maxNodes {
		problems = append(problems, fmt.Errorf("nodes: %d, want from 1 to %d", len(o.Nodes), maxNodes))
	}
	names := map[string]bool{}
	for _, node := range o.Nodes {
		if !nodeName.MatchString(node.Name) {
			problems = append(problems, fmt.Errorf("nodes: the name %q is not a DNS label of at most 12 characters", node.Name))
		}
		if names[node.Name] {
			problems = append(problems, fmt.Errorf("nodes: two are called %q", node.Name))
		}
		names[node.Name] = true
	}
	if len(o.Hosts) > maxHosts {
		problems = append(problems, fmt.Errorf("hosts: %d, want at most %d", len(o.Hosts), maxHosts))
	}
	for i, host := range o.Hosts {
		if !hostName.MatchString(host) {
			problems = append(problems, fmt.Errorf("hosts: %q is not a DNS name in lower case", host))
		}
		if slices.Contains(o.Hosts[:i], host) {
			problems = append(problems, fmt.Errorf("hosts: %q is listed twice", host))
		}
	}
	if o.StorageClass != "" && !className.MatchString(o.StorageClass) {
		problems = append(problems, fmt.Errorf("storageClass: %q is not a name of an object", o.StorageClass))
	}
	for field, path := range map[string]string{"dir": o.Dir, "thirdParty": o.ThirdParty, "nodeProgram": o.NodeProgram, "pauseProgram": o.PauseProgram} {
		if !filepath.IsAbs(path) {
			problems = append(problems, fmt.Errorf("%s: %q is not an absolute path", field, path))
		}
	}
	return errors.Join(problems...)
}

// Addresses of a cluster. Each cluster has a network of its own, so all clusters have the same.
const (
	bridgeName = "nodes"
	// controlPlaneIP is the address of the API server and of the registry, and the gateway of the nodes.
	controlPlaneIP = "10.77.0.1"
	nodePrefix     = "/24"
	apiPort        = "6443"
	registryPort   = "5000"
	// ServiceCIDR contains the addresses of Services, PodCIDR those of pods.
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.88.0.0/16"
	serviceIP   = "10.96.0.1"
	dnsIP       = "10.96.0.10"
)

// nodeIP returns the address of the node with an index.
func nodeIP(index int) string { return fmt.Sprintf("10.77.0.%d", 11+index) }

// podSubnet returns the addresses of the pods of the node with an index.
func podSubnet(index int) string { return fmt.Sprintf("10.88.%d.0/24", 1+index) }

// hostIP returns the address of the host with an index.
func hostIP(index int) string { return fmt.Sprintf("10.77.0.%d", 128+index) }

func apiAddress() string { return net.JoinHostPort(controlPlaneIP, apiPort) }

func registryAddress() string { return net.JoinHostPort(controlPlaneIP, registryPort) }
