package hostedapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// etcdClient deletes the keys of hosted control planes through etcd's JSON gateway. One kind of call does not justify
// etcd's gRPC client and its dependencies.
type etcdClient struct {
	endpoint string
	client   *http.Client
}

func newEtcdClient(servers string) *etcdClient {
	first, _, _ := strings.Cut(servers, ",")
	return &etcdClient{endpoint: strings.TrimSuffix(first, "/"), client: &http.Client{Timeout: 20 * time.Second}}
}

// deletePrefix deletes all keys of a control plane and returns their number.
func (e *etcdClient) deletePrefix(ctx context.Context, prefix string) (int64, error) {
	// "0" follows "/" in ASCII: the range is exactly the keys below prefix + "/".
	body, err := json.Marshal(map[string][]byte{"key": []byte(prefix + "/"), "range_end": []byte(prefix + "0")})
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint+"/v3/kv/deleterange", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("deleting %s from etcd: %w", prefix, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return 0, fmt.Errorf("deleting %s from etcd: %w", prefix, err)
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("deleting %s from etcd: %s", prefix, response.Status)
	}
	var result struct {
		Deleted int64 `json:"deleted,string"`
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, fmt.Errorf("deleting %s from etcd: %w", prefix, err)
	}
	return result.Deleted, nil
}
