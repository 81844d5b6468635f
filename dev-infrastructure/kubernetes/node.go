package kubernetes

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes/machine"
	"github.com/hcpmesh/hcpmesh/internal/authority"
)

const (
	clusterName   = "kubernetes"
	clusterDomain = "cluster.local"
	// Folders in a node.
	nodeEtc      = "/etc/kubernetes"
	nodeBin      = "/opt/kubernetes/bin"
	nodeCNI      = "/opt/cni/bin"
	criSocket    = "/run/containerd/containerd.sock"
	sandboxImage = "images.local/pause:1"
)

// nodePrograms are the third-party programs that a node runs, and cniPlugins those that containerd calls for the network of a pod.
var (
	nodePrograms = []string{"containerd", "containerd-shim-runc-v2", "kubelet", "kube-proxy"}
	cniPlugins   = []string{"ptp", "host-local", "loopback", "portmap"}
)

//go:embed all:files/etc
var etcTemplates embed.FS

// node is a node of a cluster. Its files are etc, which is /etc of the node, and var.
type node struct {
	Node
	index int
	dir   string
}

func (n node) ip() string { return nodeIP(n.index) }

// configure writes the files of the node's /etc and creates the folders of its /var.
func (c *Cluster) configure(n node) error {
	for _, name := range []string{"etc/kubernetes/pki", "var/lib/kubelet", "var/lib/containerd", "var/lib/cni", "var/log", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(n.dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(n.dir, "var/run")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := c.authority.Serving("node-"+n.Name, n.Name, n.ip()); err != nil {
		return err
	}
	user := "node-" + n.Name + "-client"
	if err := c.authority.Client(user, clusterName, "https://"+apiAddress(), "system:node:"+n.Name, "system:nodes"); err != nil {
		return err
	}
	for target, source := range map[string]string{
		"pki/ca.crt": "ca.crt", "pki/kubelet.crt": "node-" + n.Name + ".crt", "pki/kubelet.key": "node-" + n.Name + ".key",
		"kubelet.kubeconfig": user + ".kubeconfig", "kube-proxy.kubeconfig": proxy + ".kubeconfig",
	} {
		data, err := os.ReadFile(c.authority.Path(source))
		if err != nil {
			return err
		}
		if err := authority.WriteFile(filepath.Join(n.dir, "etc/kubernetes", target), data, 0o600); err != nil {
			return err
		}
	}
	return writeTemplates(etcTemplates, "files/etc", filepath.Join(n.dir, "etc"), c.parameters(n))
}

// parameters are the values of the templates of a node's files.
func (c *Cluster) parameters(n node) map[string]string {
	runc, _ := lookPath("runc") // Check has found it
	return map[string]string{
		"Name": n.Name, "Etc": nodeEtc, "CNI": nodeCNI, "Runc": runc,
		"PodCIDR": PodCIDR, "PodSubnet": podSubnet(n.index), "DNS": dnsIP, "Domain": clusterDomain,
		"Socket": criSocket, "Sandbox": sandboxImage, "Registry": "http://" + registryAddress(),
	}
}

// writeTemplates executes the templates below a folder and writes the results with the same paths below target.
func writeTemplates(templates fs.FS, folder, target string, parameters map[string]string) error {
	return fs.WalkDir(templates, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(templates, name)
		if err != nil {
			return err
		}
		parsed, err := template.New(name).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return err
		}
		path := filepath.Join(target, strings.TrimPrefix(name, folder+"/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		var result strings.Builder
		if err := parsed.Execute(&result, parameters); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return os.WriteFile(path, []byte(result.String()), 0o644)
	})
}

// machine returns the machine of a node.
func (c *Cluster) machine(n node) (machine.Spec, error) {
	spec := machine.Spec{
		Name: n.Name,
		Link: &machine.Link{Bridge: bridgeName, Address: n.ip() + nodePrefix, Gateway: controlPlaneIP},
		Root: &machine.Root{Mounts: []machine.Mount{
			{Source: filepath.Join(n.dir, "etc"), Target: "/etc", ReadOnly: true},
			{Source: filepath.Join(n.dir, "var"), Target: "/var"},
		}},
	}
	for index := range c.options.Nodes {
		if index != n.index {
			spec.Routes = append(spec.Routes, machine.Route{To: podSubnet(index), Via: nodeIP(index)})
		}
	}
	for folder, names := range map[string][]string{nodeBin: nodePrograms, nodeCNI: cniPlugins} {
		for _, name := range names {
			source, err := filepath.EvalSymlinks(filepath.Join(c.options.ThirdParty, name))
			if err != nil {
				return machine.Spec{}, err
			}
			spec.Root.Mounts = append(spec.Root.Mounts, machine.Mount{Source: source, Target: filepath.Join(folder, name), ReadOnly: true})
		}
	}
	run := func(name string, arguments ...string) machine.Program {
		return machine.Program{
			Name: name, Path: filepath.Join(nodeBin, name), Args: arguments, Env: []string{"PATH=" + nodeBin + ":" + systemPath}, Log: "/var/log/" + name + ".log",
		}
	}
	containerd := run("containerd", "--config="+nodeEtc+"/containerd.toml")
	containerd.Socket = criSocket
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		labels = append(labels, key+"="+n.Labels[key])
	}
	spec.Programs = []machine.Program{
		containerd,
		run("kubelet",
			"--config="+nodeEtc+"/kubelet.yaml", "--kubeconfig="+nodeEtc+"/kubelet.kubeconfig", "--cert-dir=/var/lib/kubelet/pki",
			"--hostname-override="+n.Name, "--node-ip="+n.ip(), "--node-labels="+strings.Join(labels, ","),
		),
		run("kube-proxy", "--config="+nodeEtc+"/kube-proxy.yaml"),
	}
	return spec, nil
}

// nodeRun is the time between the start of a node and its end.
type nodeRun struct {
	started time.Time
	// exited is closed when the node has terminated, for the reason err.
	exited chan struct{}
	err    error
}

// StartNode starts a node that is not running, as at the start of the cluster or after KillNode. It returns when kubelet is started,
// which is before the Node is Ready.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	if err := c.configure(n); err != nil {
		return fmt.Errorf("configuring node %s: %w", name, err)
	}
	spec, err := c.machine(n)
	if err != nil {
		return fmt.Errorf("configuring node %s: %w", name, err)
	}
	run := &nodeRun{started: time.Now(), exited: make(chan struct{})}
	terminated, err := c.outer.StartMachine(ctx, spec)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.runs[name] = run
	c.mu.Unlock()
	c.running.Go(func() {
		run.err = <-terminated
		close(run.exited)
	})
	return nil
}

// run returns the last run of a node.
func (c *Cluster) run(name string) (*nodeRun, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run := c.runs[name]; run != nil {
		return run, nil
	}
	return nil, fmt.Errorf("node %q was not started", name)
}

// NodeErr waits until a node has terminated and returns the reason, for example the end of its kubelet. A killed node has one, too.
func (c *Cluster) NodeErr(ctx context.Context, name string) error {
	run, err := c.run(name)
	if err != nil {
		return err
	}
	select {
	case <-run.exited:
		return run.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// KillNode kills a node with everything on it, as if its power failed. It returns when nothing of the node is left but its files. The
// control plane marks the Node NotReady 20 s later.
func (c *Cluster) KillNode(ctx context.Context, name string) error {
	return c.outer.KillMachine(ctx, name)
}

// node returns the node with a name.
func (c *Cluster) node(name string) (node, error) {
	index := slices.IndexFunc(c.options.Nodes, func(n Node) bool { return n.Name == name })
	if index < 0 {
		return node{}, fmt.Errorf("the cluster has no node %q", name)
	}
	return node{Node: c.options.Nodes[index], index: index, dir: filepath.Join(c.options.Dir, "nodes", name)}, nil
}
