package skew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// keyEntry is a line of the file with etcd's keys.
type keyEntry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// keysPage is the number of keys that are read in one request. Values have at most 1.5 MB.
const keysPage = 100

// saveKeys writes the latest values of all keys in the order of the keys. It leaves out keys with a lease, such as Kubernetes' events, which
// end soon. Revisions are not part of the snapshot.
func saveKeys(ctx context.Context, stores local.Endpoints, into io.Writer) error {
	return withEtcd(stores, func(etcd *clientv3.Client) error {
		encoder := json.NewEncoder(into)
		for next := "\x00"; ; {
			response, err := etcd.Get(ctx, next, clientv3.WithFromKey(), clientv3.WithLimit(keysPage))
			if err != nil {
				return err
			}
			for _, kv := range response.Kvs {
				if kv.Lease != 0 {
					continue
				}
				if err := encoder.Encode(keyEntry{string(kv.Key), kv.Value}); err != nil {
					return err
				}
			}
			if !response.More {
				return nil
			}
			next = string(response.Kvs[len(response.Kvs)-1].Key) + "\x00"
		}
	})
}

func restoreKeys(ctx context.Context, stores local.Endpoints, from io.Reader) error {
	return withEtcd(stores, func(etcd *clientv3.Client) error {
		for decoder := json.NewDecoder(from); ; {
			var e keyEntry
			err := decoder.Decode(&e)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, err := etcd.Put(ctx, e.Key, string(e.Value)); err != nil {
				return fmt.Errorf("%s: %w", e.Key, err)
			}
		}
	})
}

// withEtcd connects to etcd as its administrator during do.
func withEtcd(stores local.Endpoints, do func(*clientv3.Client) error) error {
	tls, err := stores.EtcdTLS.Config()
	if err != nil {
		return err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{stores.Etcd}, TLS: tls, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	return errors.Join(do(etcd), etcd.Close())
}
