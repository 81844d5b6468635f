package skew

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// actor repeats a round of calls until it is stopped.
type actor struct {
	name  string
	round func(ctx context.Context, number int) error

	mu sync.Mutex
	// completed is the number of rounds, err why the actor ended before it was stopped.
	completed int
	err       error
}

// actors are the clients of a region during a rollout.
type actors struct {
	all  []*actor
	stop context.CancelFunc
	done sync.WaitGroup
}

// startActors starts actors, which run until the test ends or end is called. An actor completes the round in progress before it ends.
func startActors(t *testing.T, ctx context.Context, all ...*actor) *actors {
	running, stop := context.WithCancel(ctx)
	a := &actors{all: all, stop: stop}
	for _, one := range all {
		a.done.Go(func() {
			for number := 1; running.Err() == nil; number++ {
				err := one.round(ctx, number)
				one.mu.Lock()
				if one.err = err; err == nil {
					one.completed++
				}
				one.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(func() { a.end(t) })
	return a
}

// end stops the actors, waits until they have completed their rounds, and reports their errors.
func (a *actors) end(t *testing.T) {
	t.Helper()
	a.stop()
	a.done.Wait()
	for _, one := range a.all {
		if one.err != nil {
			t.Errorf("%s: round %d: %v", one.name, one.completed+1, one.err)
		}
		one.err = nil
	}
}

// awaitRounds waits until each actor has completed a round that began after the call. Those in progress began before.
func (a *actors) awaitRounds(t *testing.T, ctx context.Context, what string) {
	t.Helper()
	before := map[*actor]int{}
	for _, one := range a.all {
		before[one], _ = one.state()
	}
	for _, one := range a.all {
		eventually.Before(ctx, t, what+": a round of "+one.name, func() error {
			completed, err := one.state()
			if err == nil && completed < before[one]+2 {
				return fmt.Errorf("%d rounds are complete", completed)
			}
			return nil // end reports the error of an actor
		})
		if _, err := one.state(); err != nil {
			t.Fatalf("%s: %s: %v", what, one.name, err)
		}
	}
}

func (a *actor) state() (completed int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.completed, a.err
}

// repeat repeats a call as clients do: after a conflict with an operation in progress, after a failed precondition, and if the service is
// unreachable or unavailable. Every other error is one of the service.
func repeat(ctx context.Context, call func() error) error {
	var failed error
	err := eventually.Repeat(ctx, func() error {
		err := call()
		if err != nil && !repeatable(err) {
			failed = err
			return nil
		}
		return err
	})
	return errors.Join(err, failed)
}

// errLost is the error for a change that a service has accepted and then lost.
var errLost = errors.New("an accepted change is lost")

func repeatable(err error) bool {
	if errors.Is(err, errLost) {
		return false
	}
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		switch status := response.StatusCode; status {
		case http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
			return true
		default:
			return status >= http.StatusInternalServerError
		}
	}
	if _, ok := errors.AsType[*adminclient.Error](err); ok || adminclient.IsRetryable(err) {
		return adminclient.IsRetryable(err)
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// reader reads resources that do not change at all api-versions.
func reader(c *customer.Customer, want views) *actor {
	return &actor{name: "a customer who reads", round: func(ctx context.Context, _ int) error {
		var got views
		if err := repeat(ctx, func() (err error) { got, err = read(ctx, c, settledResources(c)); return err }); err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("the resources have changed (-before +now):\n%s", diff)
		}
		return nil
	}}
}

// changer changes the tags of a cluster and the size of its node pool.
func changer(c *customer.Customer, name string) *actor {
	return &actor{name: "a customer who changes a cluster", round: func(ctx context.Context, number int) error {
		value := fmt.Sprint(number)
		if err := repeat(ctx, func() error { _, err := c.Patch(ctx, c.ClusterID(name), tags(value)); return err }); err != nil {
			return err
		}
		size := armresources.GenericResource{Properties: map[string]any{"replicas": 1 + number%2}}
		pool := c.NodePoolID(name, "workers")
		if err := repeat(ctx, func() error { _, err := c.Patch(ctx, pool, size); return err }); err != nil {
			return err
		}
		return repeat(ctx, func() error {
			got, err := c.Resources.GetByID(ctx, pool, customer.APIVersion, nil)
			if err != nil {
				return err
			}
			if replicas := property(got.GenericResource, "replicas"); replicas != float64(1+number%2) {
				return fmt.Errorf("%w: the node pool has %v replicas after a change to %d", errLost, replicas, 1+number%2)
			}
			return nil
		})
	}}
}

// creator creates a cluster with an external authentication and a credential, and deletes it.
func creator(c *customer.Customer) *actor {
	return &actor{name: "a customer who creates and deletes clusters", round: func(ctx context.Context, number int) error {
		name := fmt.Sprintf("short-%d", number)
		for _, call := range []func() error{
			func() error { _, err := c.Put(ctx, c.ClusterID(name), c.ClusterBody(name)); return err },
			func() error { _, err := c.Put(ctx, c.ExternalAuthID(name, "entra"), c.ExternalAuthBody()); return err },
			func() error { return requestCredential(ctx, c, name) },
			func() error { return c.Delete(ctx, c.ClusterID(name)) },
		} {
			if err := repeat(ctx, call); err != nil {
				return fmt.Errorf("cluster %s: %w", name, err)
			}
		}
		if _, err := c.Resources.GetByID(ctx, c.ClusterID(name), customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
			return fmt.Errorf("cluster %s after its deletion: %w", name, err)
		}
		return nil
	}}
}

// sre pauses and resumes a cluster through admin and reads what it waits for.
func sre(engineer *adminclient.Client, cluster string) *actor {
	act := func(ctx context.Context, action string, body any) error {
		var operation *adminv1.Operation
		if err := repeat(ctx, func() (err error) { operation, err = engineer.Act(ctx, action, body, cluster); return err }); err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		if _, err := engineer.Await(ctx, operation); err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		return nil
	}
	return &actor{name: "an SRE", round: func(ctx context.Context, _ int) error {
		if err := act(ctx, adminv1.ActionClusterPause, adminv1.PauseRequest{Duration: "1h"}); err != nil {
			return err
		}
		if err := repeat(ctx, func() error {
			_, err := adminclient.Get(ctx, engineer, adminv1.ReadExplanation, nil, cluster)
			return err
		}); err != nil {
			return err
		}
		if err := act(ctx, adminv1.ActionClusterResume, nil); err != nil {
			return err
		}
		return repeat(ctx, func() error {
			_, err := adminclient.Get(ctx, engineer, adminv1.ReadClusterUpgrades, nil, cluster)
			return err
		})
	}}
}
