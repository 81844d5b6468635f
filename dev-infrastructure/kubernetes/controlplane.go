package kubernetes

import (
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes/machine"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// controlPlanePrograms are the programs of the control plane.
var controlPlanePrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Names of the certificates of the control plane.
const (
	administrator     = "admin"
	controllerManager = "controller-manager"
	scheduler         = "scheduler"
	proxy             = "kube-proxy"
	kubeletClient     = "kubelet-client"
	aggregator        = "aggregator"
)

// systemPath is PATH of all programs of a cluster.
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

const etcdURL = "http://127.0.0.1:2379"

// issue issues the certificates of the control plane.
func (c *Cluster) issue() error {
	hosts := []string{"127.0.0.1", "localhost", controlPlaneIP, serviceIP, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain}
	if err := c.authority.Serving(kubeapi.Serving, hosts...); err != nil {
		return err
	}
	server := "https://" + apiAddress()
	for _, client := range []struct {
		name, user string
		groups     []string
	}{
		{administrator, "admin", []string{"system:masters"}},
		{controllerManager, "system:kube-controller-manager", nil},
		{scheduler, "system:kube-scheduler", nil},
		{proxy, "system:kube-proxy", nil},
		{kubeletClient, "kube-apiserver-kubelet-client", []string{"system:masters"}},
		{aggregator, "front-proxy-client", nil},
	} {
		if err := c.authority.Client(client.name, clusterName, server, client.user, client.groups...); err != nil {
			return err
		}
	}
	return nil
}

// program returns a third-party program of the control plane. It runs in the file system of the host.
func (c *Cluster) program(name string, arguments ...string) machine.Program {
	return machine.Program{
		Name: name,
		Path: filepath.Join(c.options.ThirdParty, name),
		Args: arguments,
		Env:  []string{"PATH=" + systemPath},
		Log:  filepath.Join(c.options.Dir, "logs", name+".log"),
	}
}

// controlPlane returns the machine of the control plane with the programs that start without others: etcd and the API server, which
// waits for etcd. etcd listens on the loopback interface of the machine, which nothing outside the machine reaches.
func (c *Cluster) controlPlane() machine.Spec {
	path := c.authority.Path
	spec := machine.Spec{
		Name:   "control-plane",
		Bridge: &machine.Bridge{Name: bridgeName, Address: controlPlaneIP + nodePrefix},
		Programs: []machine.Program{
			c.program("etcd",
				"--data-dir="+filepath.Join(c.options.Dir, "etcd"),
				"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
				"--listen-peer-urls=http://127.0.0.1:2380",
				"--log-level=warn",
			),
			c.program("kube-apiserver",
				"--etcd-servers="+etcdURL,
				"--encryption-provider-config="+path(kubeapi.EncryptionFile),
				// The hosts outside of the cluster have addresses of the same machine, and may serve the same port.
				"--advertise-address="+controlPlaneIP, "--bind-address="+controlPlaneIP, "--secure-port="+apiPort,
				"--tls-cert-file="+path(kubeapi.Serving+".crt"), "--tls-private-key-file="+path(kubeapi.Serving+".key"),
				"--client-ca-file="+path("ca.crt"),
				"--service-account-issuer="+TokenIssuer,
				"--service-account-key-file="+path("sa.key"), "--service-account-signing-key-file="+path("sa.key"),
				"--service-cluster-ip-range="+ServiceCIDR,
				"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
				"--kubelet-client-certificate="+path(kubeletClient+".crt"), "--kubelet-client-key="+path(kubeletClient+".key"),
				"--kubelet-certificate-authority="+path("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
				"--requestheader-client-ca-file="+path("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
				"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
				"--proxy-client-cert-file="+path(aggregator+".crt"), "--proxy-client-key-file="+path(aggregator+".key"),
				"--allow-privileged", "--profiling=false",
			),
		},
	}
	for index := range c.options.Hosts {
		spec.Bridge.Further = append(spec.Bridge.Further, hostIP(index)+nodePrefix)
	}
	for index := range c.options.Nodes {
		spec.Routes = append(spec.Routes, machine.Route{To: podSubnet(index), Via: nodeIP(index)})
	}
	return spec
}

// controllers returns the programs that need a ready API server.
func (c *Cluster) controllers() []machine.Program {
	path := c.authority.Path
	config := func(name string) []string {
		file := path(name + ".kubeconfig")
		return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file, "--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"}
	}
	return []machine.Program{
		c.program("kube-controller-manager", append(config(controllerManager),
			"--service-account-private-key-file="+path("sa.key"), "--root-ca-file="+path("ca.crt"), "--use-service-account-credentials",
			"--cluster-name="+clusterName,
			// A node whose kubelet has not renewed its lease for this long is NotReady. The default is 50 s.
			"--node-monitor-grace-period=20s",
		)...),
		c.program("kube-scheduler", config(scheduler)...),
	}
}

// createFolders creates the folders of the control plane.
func (c *Cluster) createFolders() error {
	for _, name := range []string{"etcd", "logs", "nodes", "registry"} {
		if err := os.MkdirAll(filepath.Join(c.options.Dir, name), 0o700); err != nil {
			return err
		}
	}
	return nil
}
