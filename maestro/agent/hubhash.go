package agent

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	workv1client "open-cluster-management.io/api/client/work/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/ocm/pkg/work/helper"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// hubHash returns the hash in the names of AppliedManifestWorks. The published agent uses a hash of the broker's address. If that
// address changes, all objects get a second owner and the deletion of a work does not delete them. hubHash returns the hash of
// the existing AppliedManifestWorks, and a hash of the source ID for a new cluster. It retries until the cluster responds.
func (a *Agent) hubHash(ctx context.Context, client workv1client.AppliedManifestWorkInterface) (string, error) {
	count := map[string]int{}
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		clear(count)
		o := metav1.ListOptions{Limit: 500}
		for {
			list, err := client.List(ctx, o)
			if err != nil {
				a.o.Log.WarnContext(ctx, "waiting for the management cluster", logkey.Error, err)
				return false, nil
			}
			for _, applied := range list.Items {
				if applied.Spec.AgentID == a.o.Consumer {
					count[applied.Spec.HubHash]++
				}
			}
			if list.Continue == "" {
				return true, nil
			}
			o.Continue = list.Continue
		}
	})
	if err != nil {
		return "", err
	}
	hash := helper.HubHash(a.o.SourceID)
	for candidate, n := range count {
		if n > count[hash] || n == count[hash] && candidate < hash {
			hash = candidate
		}
	}
	if len(count) > 1 {
		a.o.Log.ErrorContext(ctx, "AppliedManifestWorks have several hub hashes; using the most frequent", logkey.Key, hash, logkey.Count, len(count))
	}
	return hash, nil
}
