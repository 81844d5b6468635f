// Package kubernetes starts real Kubernetes clusters on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as
// the control plane, and nodes with kubelet, containerd, runc, kube-proxy and CNI plugins. CoreDNS runs as pods. Package machine gives the
// control plane and every node namespaces of their own, so that nodes have separate networks, file systems and processes.
//
// The nodes have no route outside. They pull every image, whatever its registry is called, from a registry of the cluster, into which
// the caller pushes images. The caller connects to the cluster through Dial, Listen or the kubeconfig, whose server is a port on loopback.
//
// A cluster belongs to the process that started it and never outlives it. Its data is in a folder and survives.
package kubernetes
