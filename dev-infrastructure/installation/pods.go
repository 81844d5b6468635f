package installation

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// ForwardPod forwards the connections of a port on loopback to a port of a ready pod with a label, and returns the address. Each connection
// finds a pod by itself, so that it survives the replacement of pods.
func (s *Outside) ForwardPod(namespace, label, port string) (address string, err error) {
	return s.forwardLocal(func(ctx context.Context) (net.Conn, error) { return s.DialPod(ctx, namespace, label, port) })
}

// DialPod connects to a port of a ready pod with a label.
func (s *Outside) DialPod(ctx context.Context, namespace, label, port string) (net.Conn, error) {
	cluster := s.cluster()
	list, err := cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		if PodReady(&pod) {
			return cluster.Dial(ctx, net.JoinHostPort(pod.Status.PodIP, port))
		}
	}
	return nil, fmt.Errorf("no pod with %s is ready in %s", label, namespace)
}

// PodReady reports whether a pod is ready and not being deleted.
func PodReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// forwardLocal forwards the connections of a port on loopback to connections that dial opens, until Close.
func (s *Outside) forwardLocal(dial func(context.Context) (net.Conn, error)) (address string, err error) {
	return s.forwardConnections(func(ctx context.Context, client net.Conn) { connect(ctx, client, dial) })
}

// forwardConnections calls handle for each connection of a port on loopback, until Close, which ends the context of the calls.
func (s *Outside) forwardConnections(handle func(context.Context, net.Conn)) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { handle(ctx, client) })
		}
	})
	s.onClose(func() error {
		cancel()
		err := listener.Close()
		running.Wait()
		return err
	})
	return listener.Addr().String(), nil
}

// connect copies between a connection and a new one until both directions or the context end. A connection that cannot be opened closes the
// other.
func connect(ctx context.Context, client net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer func() { _ = client.Close() }()
	server, err := dial(ctx)
	if err != nil {
		return
	}
	relay.Copy(ctx, client, server)
}
