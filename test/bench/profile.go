package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// profileServer is where a process serves profiles. The client is nil for a process that serves none.
type profileServer struct {
	url    string
	client *http.Client
}

// profileServerOf returns where a process of the region serves profiles: our programs on their sockets, and etcd and the API servers of management
// clusters at their addresses.
func profileServerOf(region *local.Region, process string) (profileServer, error) {
	endpoints := region.Endpoints()
	if cluster, ok := strings.CutSuffix(process, "-kube-apiserver"); ok {
		config, err := clientcmd.BuildConfigFromFlags("", endpoints.Kubeconfigs[cluster])
		if err != nil {
			return profileServer{}, err
		}
		client, err := rest.HTTPClientFor(config)
		return profileServer{url: config.Host, client: client}, err
	}
	if process == "etcd" {
		config, err := endpoints.EtcdTLS.Config()
		return profileServer{url: endpoints.Etcd, client: &http.Client{Transport: &http.Transport{TLSClientConfig: config}}}, err
	}
	socket := local.ProfilingSocket(region.Status().StateDir, process)
	if _, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) {
		return profileServer{}, nil
	}
	return profileServer{url: "http://process", client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}, nil
}

// profile records a CPU profile of the given duration into each file from its server while during runs. It returns after all have ended.
func profile(ctx context.Context, servers map[string]profileServer, duration time.Duration, during func() error) error {
	recorded := make(chan error, len(servers))
	for path, server := range servers {
		go func() { recorded <- server.record(ctx, duration, path) }()
	}
	errs := []error{during()}
	for range servers {
		errs = append(errs, <-recorded)
	}
	return errors.Join(errs...)
}

// record writes a CPU profile of the given duration to a file.
func (s profileServer) record(ctx context.Context, duration time.Duration, path string) error {
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", s.url, int(duration/time.Second))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	defer s.client.CloseIdleConnections()
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("recording the CPU profile: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("recording the CPU profile: %s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, response.Body)
	return errors.Join(err, file.Close())
}
