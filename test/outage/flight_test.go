package outage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// poolName is the name of the node pool that is scaled.
const poolName = "np"

// flights are what the next operations change.
type flights struct {
	// old is the cluster that is deleted next, size the number of nodes, and key the version of the key that encrypts etcd. created is
	// the number of clusters that were created to be deleted by the next outage.
	old                string
	size, key, created int
}

// operation is an accepted operation of the customer.
type operation struct {
	cluster string
	// url is that of its status.
	url string
}

// begin requests the operations that a component is tested with, and returns them by name. The quiet cluster has none.
func (r *region) begin(ctx context.Context, c fault.Component, next string) (map[string]*operation, error) {
	r.size, r.key = r.size+1, r.key+1
	id := r.customer.ClusterID
	resources := r.customer.Resources
	requests := map[string]func(ctx context.Context) error{
		create: func(ctx context.Context) error {
			_, err := resources.BeginCreateOrUpdateByID(ctx, id(next), customer.APIVersion, r.customer.ClusterBody(next), nil)
			return err
		},
		update: func(ctx context.Context) error {
			body := armresources.GenericResource{Properties: map[string]any{"etcd": customer.Etcd(strconv.Itoa(r.key))}}
			_, err := resources.BeginUpdateByID(ctx, id(update), customer.APIVersion, body, nil)
			return err
		},
		scaling: func(ctx context.Context) error {
			_, err := resources.BeginCreateOrUpdateByID(ctx, r.customer.NodePoolID(scaling, poolName), customer.APIVersion, r.customer.NodePoolBody(r.size), nil)
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := resources.BeginDeleteByID(ctx, id(r.old), customer.APIVersion, nil)
			return err
		},
	}
	names := map[string]string{create: next, update: update, scaling: scaling, remove: r.old}
	begun := map[string]*operation{}
	var accepted errgroup.Group
	for name, request := range requests {
		if omittedFor(c, name) != "" {
			continue
		}
		o := &operation{cluster: names[name]}
		begun[name] = o
		accepted.Go(func() error {
			var response *http.Response
			if err := request(policy.WithCaptureResponse(ctx, &response)); err != nil {
				return fmt.Errorf("the request of %s: %w", name, err)
			}
			if o.url = response.Header.Get("Azure-AsyncOperation"); o.url == "" {
				return fmt.Errorf("the response to the request of %s has no operation: %s", name, response.Status)
			}
			return nil
		})
	}
	return begun, accepted.Wait()
}

// status is the status of an operation, as ARM shows it.
type status struct {
	Status    string     `json:"status"`
	StartTime time.Time  `json:"startTime"`
	EndTime   *time.Time `json:"endTime"`
}

// read returns the status of an operation.
func (r *region) read(ctx context.Context, o *operation) (*status, error) {
	token, err := r.customer.Credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token.Token)
	client, err := customer.NewHTTPClient(r.Endpoints().CAFile)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", o.url, response.Status)
	}
	read := &status{}
	return read, json.NewDecoder(response.Body).Decode(read)
}
