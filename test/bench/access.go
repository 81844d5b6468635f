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

// revocations is the number of revocations; before each one, credentialsEach credentials are requested.
const revocations, credentialsEach = 3, 4

// measureAccess measures the time until a requested credential works at the hosted API server, and the time until a revoked one
// is rejected.
func measureAccess(ctx context.Context, c *customer.Customer, id string, report *report) error {
	var accepted, rejected []time.Duration
	for range revocations {
		var last *kubernetes.Clientset
		for range credentialsEach {
			sent := time.Now()
			administrator, err := request(ctx, c, id)
			if err != nil {
				return err
			}
			if err := authenticate(ctx, administrator); err != nil {
				return fmt.Errorf("using a credential: %w", err)
			}
			accepted, last = append(accepted, time.Since(sent)), administrator
		}
		sent := time.Now()
		if err := c.Act(ctx, id, "revokeCredentials", nil, nil); err != nil {
			return err
		}
		if err := authenticate(ctx, last); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the API server accepted a revoked credential: %w", err)
		}
		rejected = append(rejected, time.Since(sent))
	}
	report.durations("Credential requested to working kubeconfig", accepted, "goal: p50 2s")
	report.durations("Revocation requested to credential rejected", rejected, "goal: 15s")
	return nil
}

// request requests an admin credential through ARM and returns a client that uses it.
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

// authenticate creates a SelfSubjectReview, which every authenticated user may do.
func authenticate(ctx context.Context, client *kubernetes.Clientset) error {
	_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}
