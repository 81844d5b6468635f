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

// etcdKeys reaches the keys of hosted control planes through etcd's JSON gateway, which is a part of every etcd: two
// calls do not deserve its gRPC client and that client's dependencies.
type etcdKeys struct {
	endpoint string
	client   *http.Client
}

func newEtcdKeys(servers string) *etcdKeys {
	first, _, _ := strings.Cut(servers, ",")
	return &etcdKeys{endpoint: strings.TrimSuffix(first, "/"), client: &http.Client{Timeout: 20 * time.Second}}
}

// deletePrefix removes every key of a control plane and returns how many there were.
func (e *etcdKeys) deletePrefix(ctx context.Context, prefix string) (int64, error) {
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
	var answer struct {
		Deleted int64 `json:"deleted,string"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, fmt.Errorf("deleting %s from etcd: %w", prefix, err)
	}
	return answer.Deleted, nil
}
