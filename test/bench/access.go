package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// revocations is how often a class of credentials is revoked; before each, credentialsEach are requested.
const revocations, credentialsEach = 3, 4

// measureAccess requests credentials of a cluster until each works at the hosted API server, and revokes them until it is refused there.
func measureAccess(ctx context.Context, c *customer.Customer, id string, report *report) error {
	var works, refused []time.Duration
	for range revocations {
		var last *kubernetes.Clientset
		for range credentialsEach {
			sent := time.Now()
			administrator, err := request(ctx, c, id)
			if err != nil {
				return err
			}
			if err := whoAmI(ctx, administrator); err != nil {
				return fmt.Errorf("using a credential: %w", err)
			}
			works, last = append(works, time.Since(sent)), administrator
		}
		sent := time.Now()
		if err := c.Act(ctx, id, "revokeCredentials", nil, nil); err != nil {
			return err
		}
		if err := whoAmI(ctx, last); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("a revoked credential is answered: %w", err)
		}
		refused = append(refused, time.Since(sent))
	}
	report.durations("Credential requested to kubeconfig that works", works, "goal: p50 2s")
	report.durations("Revocation requested to credential refused", refused, "goal: 15s")
	return nil
}

// request gets an administrator's credential through ARM.
func request(ctx context.Context, c *customer.Customer, id string) (*kubernetes.Clientset, error) {
	key, signing, err := credential.Request()
	if err != nil {
		return nil, err
	}
	var issued struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	if err := c.Act(ctx, id, "requestAdminCredential", map[string]string{"certificateSigningRequest": string(signing)}, &issued); err != nil {
		return nil, err
	}
	kubeconfig, err := credential.WithKey([]byte(issued.Kubeconfig), key)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// whoAmI asks the hosted API server whom it takes the caller for, which it tells everybody whom it knows.
func whoAmI(ctx context.Context, client *kubernetes.Clientset) error {
	_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}
