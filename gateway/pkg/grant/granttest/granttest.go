// Package granttest uses the tokens of access sessions with real API servers.
package granttest

import (
	"context"
	"net"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// want are the service account of each mode, and whether it may read Secrets.
var want = map[adminv1.AccessMode]struct {
	account string
	secrets bool
}{adminv1.AccessRead: {"access-reader", false}, adminv1.AccessAdmin: {"access-admin", true}}

// Rights checks that a token is that of the service account of its mode in a namespace, and that it has the rights of the mode. dial connects to the API server; nil
// means directly.
func Rights(t *testing.T, issued *grant.Grant, namespace string, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	t.Helper()
	objects, err := kubernetes.NewForConfig(&rest.Config{Host: issued.Server, BearerToken: issued.Token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(issued.Authorities)}, Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	self, err := objects.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || self.Status.UserInfo.Username != "system:serviceaccount:"+namespace+":"+want[issued.Mode].account {
		t.Errorf("%s: the user is %q, %v", issued.Mode, self.Status.UserInfo.Username, err)
	}
	eventually.Soon(t, "the API server knows the role", func() error {
		_, err := objects.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		return err
	})

	if _, err := objects.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); (err == nil) != want[issued.Mode].secrets || err != nil && !apierrors.IsForbidden(err) {
		t.Errorf("%s: Secrets: %v", issued.Mode, err)
	}
}
