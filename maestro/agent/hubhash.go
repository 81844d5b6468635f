package agent

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	workv1client "open-cluster-management.io/api/client/work/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/ocm/pkg/work/helper"
)

// hubHash chooses the hash that AppliedManifestWorks are named after and found by. The published agent takes the
// broker's address for it, so that a broker that moves orphans every work: the objects get a second owner, and deleting
// the work no longer deletes them. Here it is the one that the agent's AppliedManifestWorks carry already, whoever made
// them; only a new cluster gets one, from the source's name. It waits for the cluster to answer.
func (a *Agent) hubHash(ctx context.Context, client workv1client.AppliedManifestWorkInterface) (string, error) {
	count := map[string]int{}
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		clear(count)
		o := metav1.ListOptions{Limit: 500}
		for {
			list, err := client.List(ctx, o)
			if err != nil {
				a.o.Log.Warn("waiting for the management cluster", "error", err)
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
		a.o.Log.Error("AppliedManifestWorks of several hub hashes; those of the others are left alone", "chosen", hash, "hashes", len(count))
	}
	return hash, nil
}
