package fault

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

// revokeEtcd takes the API server's rights in etcd away.
func revokeEtcd(ctx context.Context, s *Server) (undo func(context.Context) error, err error) {
	config, err := s.endpoints.EtcdTLS.Config()
	if err != nil {
		return nil, err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoints.Etcd}, TLS: config, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	users, err := etcd.UserList(ctx)
	if err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	user, err := userOf(users.Users, s.Cluster.ClusterID)
	if err == nil {
		_, err = etcd.UserRevokeRole(ctx, user, user)
	}
	if err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	return func(ctx context.Context) error {
		_, err := etcd.UserGrantRole(ctx, user, user)
		return errors.Join(err, etcd.Close())
	}, nil
}

// expire replaces the serving certificate by an expired one.
func expire(_ context.Context, s *Server) (undo func(context.Context) error, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	before := map[string][]byte{}
	undo = func(context.Context) error {
		var failed []error
		for name, content := range before {
			failed = append(failed, os.WriteFile(name, content, 0o600))
		}
		return errors.Join(failed...)
	}
	for name, content := range map[string][]byte{
		"serving.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		"serving.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		found, err := findFile(s.dir, name)
		if err != nil {
			return nil, err
		}
		if before[found], err = os.ReadFile(found); err != nil {
			return nil, err
		}
		if err := os.WriteFile(found, content, 0o600); err != nil {
			return nil, errors.Join(err, undo(context.Background()))
		}
	}
	return undo, nil
}

// breakEndpoint makes the HostedCluster report an endpoint at which nothing listens. The API server works.
func breakEndpoint(ctx context.Context, s *Server) (undo func(context.Context) error, err error) {
	management, err := s.management()
	if err != nil {
		return nil, err
	}
	clusters := management.Resource(schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}).Namespace(s.Cluster.Namespace)
	list, err := clusters.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("the namespace %s has %d HostedClusters", s.Cluster.Namespace, len(list.Items))
	}
	annotate := func(ctx context.Context, value any) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{contract.FaultAnnotation: value}}})
		if err != nil {
			return err
		}
		_, err = clusters.Patch(ctx, list.Items[0].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	if err := annotate(ctx, string(contract.FaultEndpointBroken)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return annotate(ctx, nil) }, nil
}
