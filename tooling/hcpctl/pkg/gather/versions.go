package gather

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// versionTimeout limits the request to one process.
const versionTimeout = 2 * time.Second

// Versions returns the version and readiness of processes. addresses maps names to addresses of health endpoints.
func Versions(ctx context.Context, addresses map[string]string) (versions any, failures []error) {
	client := &http.Client{Timeout: versionTimeout, Transport: transport.System()}
	defer client.CloseIdleConnections()
	found := map[string]any{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, address := range addresses {
		group.Go(func() {
			version, err := ask(ctx, client, "http://"+address+"/version", http.StatusOK)
			ready, readyErr := any(nil), error(nil)
			if err == nil {
				ready, readyErr = ask(ctx, client, "http://"+address+"/readyz", http.StatusOK, http.StatusServiceUnavailable)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, err := range []error{err, readyErr} {
				if err != nil {
					failures = append(failures, fmt.Errorf("%s: %w", name, err))
				}
			}
			if err == nil {
				found[name] = map[string]any{"version": version, "readiness": ready}
			}
		})
	}
	group.Wait()
	return found, failures
}

// ask reads JSON from a URL.
func ask(ctx context.Context, client *http.Client, url string, good ...int) (any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if !slices.Contains(good, response.StatusCode) {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	var answer any
	err = json.Unmarshal(body, &answer)
	return answer, err
}
