package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// profileTime is the duration of a CPU profile.
const profileTime = 3 * time.Second

// profile records a CPU profile of the process with the given profiling socket while during runs. It returns the path of the
// profile after both have ended.
func profile(ctx context.Context, socket string, during func() error) (path string, err error) {
	path = filepath.Join(os.TempDir(), fmt.Sprintf("hcpmesh-bench-%d.pprof", os.Getpid()))
	sampled := make(chan error, 1)
	go func() {
		sampled <- download(ctx, socket, fmt.Sprintf("http://process/debug/pprof/profile?seconds=%d", int(profileTime/time.Second)), path)
	}()
	err = during()
	if sampleErr := <-sampled; err == nil && sampleErr != nil {
		err = fmt.Errorf("recording the CPU profile: %w", sampleErr)
	}
	return path, err
}

// download stores the response of a server on a Unix socket.
func download(ctx context.Context, socket, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
